"""Files that a dataset reads: of this machine, of a file system that TensorFlow knows, or of a store.

    s3://bucket/clicks/train*   --find_files-->   s3://bucket/clicks/train-0 ...   --read_range, open_bytes-->   bytes

A store is read through fsspec (part object_store), which reads ahead while a file is read from its beginning to its
end. A request that fails for a reason that may pass is repeated for a minute.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import glob
import gzip
import importlib
import io
import os
import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import IO, Any, Callable, Union

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, DataError
from ps_train.parts.object_store.flags import protocol_of
from ps_train.parts.object_store.patience import persist
from ps_train.parts.object_store.store import StoreError, open_files, translated
from ps_train.runtime.compression import compression_of

_READ_SECS = 60.0  # less than --step_timeout_secs, in which a step waits for its batch
_BLOCK_BYTES, _MOST_BLOCKS = 4 << 20, 4  # of a file that is read ahead
_MARK_BYTES = 10
_FLAG = "--data_dir"
# By its name a file is read as a stream, whether or not it is compressed.
STREAM_NAMES = {"gzip": ".gz", "zstd": ".zst"}
PARQUET = ".parquet"  # by its name a file is cut at its row groups
_PARQUET_ENDS = (b"PAR1", b"PARE")  # https://parquet.apache.org/docs/file-format/, the second if it is encrypted
NUM_THREADS = 16  # they wait for files, which may be far away
_WILDCARD = re.compile(r"[*?\[]")
_ANY_FOLDERS = re.compile(r"(?:(.*?)/)?\*\*(?:/(.*))?", re.DOTALL)  # above the first `**`, and below it
_UNFINISHED = re.compile(r"(^|/)[._]|\.tmp(/|$)")
_thread = threading.local()

Path = Union[str, "os.PathLike[str]"]
Files = Union[Path, Sequence[Path]]


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """While its body runs, the files that this thread finds may grow, and others may come (--follow).

    `find_files` then leaves out files that are being written, Parquet files without their end among them, and a last
    line without a line end is none.
    """
    _thread.is_growing = True
    try:
        yield
    finally:
        _thread.is_growing = False


def is_growing() -> bool:
    """Returns whether files may grow."""
    return getattr(_thread, "is_growing", False)


def name_behind(pattern: str, path: str) -> str:
    """Returns the part of a path behind the folders of its pattern that have no wildcard."""
    return path[len(fixed_folder(pattern)):].lstrip("/")


def fixed_folder(pattern: str) -> str:
    """Returns the folders of a pattern that have no wildcard."""
    return _WILDCARD.split(pattern)[0].rpartition("/")[0]


def is_stream(name: str) -> bool:
    """Returns whether a file is read from its beginning to its end."""
    return name.endswith(tuple(STREAM_NAMES.values()))


def is_unfinished(name: str) -> bool:
    """Returns whether a file, by its name behind its pattern's folders, gets another name when it is whole."""
    return bool(_UNFINISHED.search(name))


def is_in_store(name: str) -> bool:
    """Returns whether fsspec reads a file: TensorFlow does not know the protocol of its URL."""
    protocol = protocol_of(name)
    return bool(protocol) and protocol not in tf.io.gfile.get_registered_schemes()


def patterns_of(files: Files) -> list[str]:
    """Returns patterns, of which there may be one alone; raises DataError if there is none."""
    patterns = [*map(os.fspath, [files] if isinstance(files, (str, os.PathLike)) else files)]
    if not patterns:
        raise DataError("input_file_missing", f"file_ranges: files is {files!r}, which names no file; give a pattern, "
                        "or names of files")
    return patterns


def find_files(files: Files) -> list[str]:
    """Returns the files that match a pattern, or patterns, in the order of their names.

    Raises:
      DataError: none matches one of the patterns, or there is no pattern.
      PsTrainError: the store cannot be used.
    """
    names: set[str] = set()
    for pattern in patterns_of(files):
        matching = list(_sizes_in_store(pattern)) if is_in_store(pattern) else [
            name for name in _globbed(_as_it_stands(pattern)) if not tf.io.gfile.isdir(name)]
        whole = _whole(pattern, matching) if is_growing() else matching
        if not whole:
            is_folder = not matching and _is_folder(pattern)
            raise DataError("input_file_missing", f"{pattern} is a folder; give a pattern of the files in it, such as "
                            f"{pattern.rstrip('/')}/*" if is_folder else
                            f"{pattern}: no such file{' that is whole' if matching else ''}")
        names.update(whole)
    return sorted(names)


def _is_folder(name: str) -> bool:
    return _asked(name, lambda files, path: files.isdir(path)) if is_in_store(name) else tf.io.gfile.isdir(name)


def _as_it_stands(pattern: str) -> str:
    """Returns a pattern without wildcards in a file, or in its first folders, that exist by the names as they stand."""
    name = pattern
    while _WILDCARD.search(name) and not _exists(name):
        name = name.rpartition("/")[0]
    return glob.escape(name) + pattern[len(name):]


def _globbed(pattern: str) -> list[str]:
    """Returns what matches a pattern, in which `**` is any number of folders, as in stores; to TensorFlow it is `*`."""
    if not (match := _ANY_FOLDERS.fullmatch(pattern)):
        return tf.io.gfile.glob(pattern)
    above, below = "." if match[1] is None else match[1] or "/", match[2] or "*"
    folders = [folder for top in tf.io.gfile.glob(above) for folder, _, _ in tf.io.gfile.walk(top)]
    found = [name for folder in folders for name in _globbed(f"{glob.escape(folder.rstrip('/'))}/{below}")]
    # In the working directory TensorFlow gives names that the user has not written so.
    return found if pattern.startswith("./") else [name.removeprefix("./") for name in found]


def _exists(name: str) -> bool:
    with contextlib.suppress(tf.errors.OpError):  # such as a folder that may not be read
        return tf.io.gfile.exists(name)
    return False


def _whole(pattern: str, names: Sequence[str]) -> list[str]:
    """Returns the files that are not being written, of those that match."""
    with futures.ThreadPoolExecutor(NUM_THREADS) as pool:
        are_whole = pool.map(lambda name: not is_unfinished(name_behind(pattern, name)) and _has_end(name), names)
        return [name for name, is_whole in zip(names, are_whole) if is_whole]


def _has_end(name: str) -> bool:
    """Returns false for a Parquet file without its end: it may be written in place."""
    if not name.endswith(PARQUET):
        return True
    size = size_now(name) or 0
    end_bytes = len(_PARQUET_ENDS[0])
    return size > end_bytes and read_range(name, size - end_bytes, size) in _PARQUET_ENDS


def size_of(name: str) -> int:
    """Returns the bytes of a file; raises as `find_files` does."""
    if not is_in_store(name):
        return tf.io.gfile.stat(name).length
    return _asked(name, lambda files, path: files.info(path)["size"])


def check_size(name: str, file_bytes: int) -> None:
    """Raises DataError if a file has not so many bytes, and as `size_of` does; below 0, any number will do."""
    if 0 <= file_bytes != (size := size_of(name)):
        raise size_changed(name, size, file_bytes)


def size_changed(name: str, size: int, file_bytes: int) -> DataError:
    """Returns the error of a file whose size is not that with which its ranges were made."""
    return DataError("input_file_changed", f"{name}: got {size} bytes, expected {file_bytes}; the file has changed "
                     "since training began, start again")


def sizes_now(pattern: str) -> dict[str, int]:
    """Returns name -> bytes of the files that match a pattern; of a store, in one listing.

    Raises:
      PsTrainError: the store cannot be used.
      tf.errors.OpError: the folder cannot be read.
    """
    if is_in_store(pattern):
        return _sizes_in_store(pattern)
    sizes = {}
    for name in _globbed(_as_it_stands(pattern)):
        with contextlib.suppress(tf.errors.NotFoundError):  # it is gone by now
            stat = tf.io.gfile.stat(name)
            if not stat.is_directory:
                sizes[name] = stat.length
    return sizes


def size_now(name: str) -> int | None:
    """Returns the bytes of a file, None if it is not there; raises as `sizes_now` does."""
    try:
        return size_of(name)
    except tf.errors.NotFoundError:
        return None
    except DataError as error:
        if error.code != "input_file_missing":
            raise
        return None


def changed_secs(name: str) -> float:
    """Returns when a file was last written, in seconds since 1970; raises as `size_of` does."""
    if is_in_store(name):
        return _asked(name, lambda files, path: files.modified(path)).timestamp()
    return tf.io.gfile.stat(name).mtime_nsec / 1e9


def open_bytes(name: str, size: int | None = None) -> IO[bytes]:
    """Opens a file for reading in some places; not through TensorFlow if it is on this machine.

    Args:
      size: of the file, if it is known.
    """
    if is_in_store(name):
        return _StoreFile(name, size_of(name) if size is None else size)  # type: ignore[return-value]
    # TensorFlow reads 512 kB ahead after each seek (tensorflow/python/lib/io/file_io.py).
    return tf.io.gfile.GFile(name, "rb") if "://" in name else open(name, "rb", buffering=0)


def open_buffered(name: str, size: int | None = None) -> io.BufferedReader:
    """Opens a file as `open_bytes` does, such that a read returns as many bytes as it asks for, but for the last."""
    opened = open_bytes(name, size)
    return io.BufferedReader(opened if isinstance(opened, io.RawIOBase) else _RawFile(opened))


@contextlib.contextmanager
def open_stream(name: str) -> Iterator[IO[bytes]]:
    """Opens a file for reading from its beginning on, with read-ahead; decompresses it if its name ends in .gz or .zst.

    Raises:
      DataError: it is damaged, missing or cannot be read.
      ConfigError: it is compressed with zstd, and no package for that is installed.
    """
    with _one_line_errors(name), contextlib.ExitStack() as stack:
        opened = stack.enter_context(_StoreFile(name, size_of(name), is_stream=True) if is_in_store(name) else
                                     _RawFile(open_bytes(name)))
        file = stack.enter_context(io.BufferedReader(opened, _BLOCK_BYTES))
        kind = compression_of(file.peek(_MARK_BYTES)[:_MARK_BYTES]) if is_stream(name) else None
        if kind not in STREAM_NAMES:
            yield file
            return
        content, faults = _decompressed(name, kind, file)
        try:
            with content as decompressed:
                yield io.BufferedReader(decompressed, _BLOCK_BYTES)  # type: ignore[misc]
        except faults as error:
            raise DataError("input_file_damaged", f"{name}: damaged {kind} file: {error}; copy it again") from None


def _decompressed(name: str, kind: str, file: IO[bytes]) -> tuple[Any, tuple[type[Exception], ...]]:
    """Returns the content of a compressed file, and what reading it raises if it is damaged."""
    if kind == "gzip":
        return gzip.GzipFile(fileobj=file), (EOFError, zlib.error, gzip.BadGzipFile)
    for module in ("compression.zstd", "backports.zstd"):  # that of Python 3.14, and the same for those before
        with contextlib.suppress(ImportError):
            zstd = importlib.import_module(module)
            return zstd.ZstdFile(file), (EOFError, zstd.ZstdError)
    raise ConfigError("package_missing", f"{name} is compressed (zstd) and needs backports.zstd, which is not "
                      "installed: pip install 'ps_train[zstd]'")


def read_range(name: str, start: int, stop: int) -> bytes:
    """Returns bytes of a file, of one in a store in one request; raises as `find_files` does."""
    if is_in_store(name):
        content = _asked(name, lambda files, path: files.cat_file(path, start=start, end=stop))
    else:
        with _one_line_errors(name), open_bytes(name) as file:
            file.seek(start)
            content = file.read(stop - start)
    if len(content) != stop - start:
        raise DataError("input_file_changed", f"{name}: got {len(content)} of the bytes {start} to {stop}; the file "
                        "has changed since training began, start again")
    return content


@contextlib.contextmanager
def _one_line_errors(name: str) -> Iterator[None]:
    """Makes errors of the file system DataErrors."""
    try:
        yield
    except (FileNotFoundError, tf.errors.NotFoundError):
        raise DataError("input_file_missing", f"{name}: no such file any more, and it was not read yet; "
                        "restore it, or start again without it") from None
    except (OSError, tf.errors.OpError) as error:
        raise DataError("input_file_unreadable", f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}"
                        "; make it readable, and start this task again") from None


def _sizes_in_store(pattern: str) -> dict[str, int]:
    root = _root_of(pattern)
    path, root_path, found = _asked(
        pattern, lambda files, path: (path, files._strip_protocol(root), _listed(files, path)))  # noqa: SLF001
    # That of abfs://container@account/folder is container/folder.
    before, left_out = (pattern.removesuffix(path), "") if pattern.endswith(path) else (root, root_path)
    return {before + name.removeprefix(left_out): int(entry["size"]) for name, entry in found.items()
            if entry["type"] == "file"}


def _root_of(url: str) -> str:
    """Returns the protocol of a URL, and the host or bucket."""
    protocol, _, path = url.partition("://")
    return f"{protocol}://{path.partition('/')[0]}"


def _listed(files: Any, pattern: str) -> dict[str, Any]:
    """Returns path -> entry of what matches a pattern of fsspec; raises what the store raises."""
    if "://" in pattern:  # of the web, where "?" is no wildcard
        return files.glob(pattern, detail=True)
    may_be_name = "[" in pattern or not _WILDCARD.search(pattern)
    if may_be_name and (entry := _if_there(lambda: files.info(pattern))):
        return {pattern: entry}
    # Not `glob`, nor `find`, which take a folder that cannot be listed now for an empty one.
    root = fixed_folder(pattern)
    found, waiting = {}, [(root, pattern[len(root):].strip("/").split("/"))]
    while waiting:
        folder, (part, *rest) = waiting.pop()
        if part == "**" and rest:
            waiting.append((folder, rest))
        for entry in _if_there(functools.partial(files.ls, folder or files.root_marker, detail=True)) or []:
            path = entry["name"].rstrip("/")
            if path == folder or not fnmatch.fnmatchcase(path.rpartition("/")[2], part):
                continue
            if entry["type"] != "directory":
                found.update({} if rest else {path: entry})
            elif rest or part == "**":
                waiting.append((path, [part, *rest] if part == "**" else rest))
    return found


def _if_there(ask: Callable[[], Any]) -> Any:
    """Returns `ask()`, or None if the store has no such path."""
    try:
        return ask()
    except FileNotFoundError:
        return None


@functools.lru_cache(maxsize=8)
def _files_of(root: str) -> Any:
    """Returns the file system of a URL's protocol and host."""
    if protocol_of(root) == "kafka":
        raise ConfigError("kafka_not_read", f"{root}: ps_train reads no topics of Kafka; let a consumer write messages "
                          "to files, and train on these with --dynamic_sharding --follow (docs/data.md)")
    return open_files(root, _FLAG)[0]


def _asked(name: str, ask: Callable[[Any, str], Any]) -> Any:
    """Returns what `ask` returns for the file system and the path of a URL; asks again while the store fails."""
    def attempt() -> Any:
        with translated(passing=(ConfigError,)):
            files = _files_of(_root_of(name))
            return ask(files, files._strip_protocol(name))  # noqa: SLF001 (fsspec's name for it)

    try:
        return persist(attempt, name, _READ_SECS, threading.Event())
    except StoreError as error:
        if error.kind == "missing":
            raise DataError("input_file_missing", f"{name}: no such file") from None
        raise ConfigError("store_denied", f"{name}: {error}; give this process credentials that may list and read "
                          "there, in the way of the store's library") from None


class _RawFile(io.RawIOBase):
    """A file that is open, as `io.BufferedReader` wants it; TensorFlow's are not."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[:len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


class _StoreFile(io.RawIOBase):
    """A file in a store, which is opened again after a failure."""

    def __init__(self, name: str, size: int, *, is_stream: bool = False) -> None:
        """Sends nothing yet; `is_stream`: whether to read ahead."""
        self._name, self._size, self._is_stream = name, size, is_stream
        self._position = 0
        self._opened: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._size)
        if stop <= self._position:
            return 0
        content = _asked(self._name, functools.partial(self._read, stop)) if self._is_stream else read_range(
            self._name, self._position, stop)
        buffer[:len(content)] = content
        self._position += len(content)
        return len(content)

    def _read(self, stop: int, files: Any, path: str) -> bytes:
        opened, self._opened = self._opened, None
        if opened is None:
            opened = files.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="background",
                                cache_options={"maxblocks": _MOST_BLOCKS})
        opened.seek(self._position)
        content = opened.read(stop - self._position)
        self._opened = opened  # not after a failure
        return content

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        super().close()
