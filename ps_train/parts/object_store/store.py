"""One folder of an object store, through fsspec.

    names, read, write, create, put, get, remove   --> fsspec --> s3fs, gcsfs, ... --> the store

Each library behind fsspec raises errors of its own. Here they become a StoreError: one line, without credentials.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ps_train.errors import ConfigError
from ps_train.parts.object_store.calls import Calls
from ps_train.parts.object_store.flags import protocol_of, refuse_missing_packages

# Where `create` is one conditional request, or an exclusive open. Elsewhere it looks first, and then writes.
_CONDITIONAL = frozenset({"s3", "s3a", "gs", "gcs", "file", "local", "memory"})
_HAS_FOLDERS = frozenset({"hdfs", "sftp", "ssh", "smb", "ftp", "webhdfs"})  # which must exist before a file in them
_MAX_REASON = 200  # characters
TRAIN_DIR = "--train_dir"
UNFINISHED = ".new"  # after the name of a file that is being downloaded
BEST = "best"  # the folder of the best checkpoint, as in storage/checkpoints.py, which needs TensorFlow
_BLOCK_BYTES = 1 << 20
# Unlike s3fs, gcsfs reads https_proxy only if it is told to (fsspec/gcsfs#491).
_BY_PROXY = {"session_kwargs": {"trust_env": True}}
# Bounds of one request, which is repeated here and by the library. The one that joins the parts of a large upload may
# take a minute.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "gs": _BY_PROXY, "gcs": _BY_PROXY,
    "s3": {"config_kwargs": {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 1}},
           "max_concurrency": 2}}  # parts of 50 MB that an upload has in memory
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|CONNECTION_STRING", re.IGNORECASE)
_MIN_SECRET = 8  # characters: a shorter value, such as "none", may be a word of the message
_DENIED = re.compile(
    r"Credentials?Error|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Forbidden|Unauthorized|"
    r"(?<![\w./:-])40[13](?![\w/-]|\.\w)|"  # not of model.ckpt-403.index, run-401/ or host:403
    r"AuthorizationHeaderMalformed|PermanentRedirect")  # of another region


class StoreError(Exception):
    """The store did not do what it was asked for; the message is one line without credentials.

    Attributes:
      kind: "missing": no such bucket or object; "denied": no right, no credentials, or another region; "": it may pass.
    """

    def __init__(self, reason: str, kind: str = "") -> None:
        """Takes the reason and its kind."""
        super().__init__(reason)
        self.kind = kind


class RemovedError(Exception):
    """A checkpoint was removed while it was read, as a newer one is there: list the store again."""


def open_store(url: str, flag: str = TRAIN_DIR) -> ObjectStore:
    """Returns the store of a URL; sends nothing yet; raises as `open_files` does."""
    files, root = open_files(url.rstrip("/"), flag)
    return ObjectStore(files, root, url, flag)


def open_files(url: str, place: str) -> tuple[Any, str]:
    """Returns the file system of fsspec for a URL, and the path in it; sends nothing yet.

    Args:
      place: the flag that has the URL, for errors.

    Raises:
      ConfigError: a package is missing, or fsspec does not know the protocol.
      StoreError: the library of the store, as that of HDFS, connects at once, and has failed.
    """
    refuse_missing_packages(url, place)
    import fsspec  # noqa: PLC0415 (an extra)

    protocol = protocol_of(url)
    options = {**_OPTIONS.get(protocol.removesuffix("a"), {}),
               **({"auto_mkdir": True} if protocol in ("file", "local") else {})}
    try:
        with translated(passing=(ValueError, ImportError)):
            return fsspec.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **options)
    except (ValueError, ImportError) as error:
        raise ConfigError("store_unknown", f"{place}={url}: fsspec cannot open it: {reason_of(error)}; give the "
                          "URL of a store whose package is installed, such as s3://bucket/run") from None


class ObjectStore:
    """One folder of a store; names are relative to it, with slashes.

    Attributes:
      url: of the folder, without a slash at its end.
      flag: which flag has the URL.
      is_conditional: whether the store itself refuses to create a name twice.
      calls: those that are under way, also of folders in this one.
    """

    def __init__(
        self, files: Any, root: str, url: str, flag: str = TRAIN_DIR, calls: Calls | None = None
    ) -> None:
        """Sends nothing yet.

        Args:
          files: the file system of fsspec.
          root: the folder in it.
          calls: of the store in which this is a folder.
        """
        protocol, self.calls = protocol_of(url), calls or Calls()
        self._fs, self._root, self.url, self.flag = files, root.rstrip("/"), url.rstrip("/"), flag
        self.is_conditional = protocol in _CONDITIONAL
        self._makes_folders = protocol in _HAS_FOLDERS

    def below(self, folder: str) -> ObjectStore:
        """Returns a folder in this one."""
        return ObjectStore(self._fs, f"{self._root}/{folder}", f"{self.url}/{folder}", self.flag, self.calls)

    def names(self, *, is_deep: bool = False) -> dict[str, int]:
        """Returns name -> bytes of the objects in the folder; with `is_deep` also of those in folders below."""
        # Not `find`, which takes a folder that cannot be listed for an empty one.
        names, folders = {}, [self._root]
        while folders:
            folder = folders.pop()
            with self._call("list", folder):
                entries = {entry["name"]: entry for entry in self._list(folder)}
                names.update({path[len(self._root):].lstrip("/"): entry["size"] for path, entry in entries.items()
                              if entry["type"] == "file"})
            folders += [path for path, entry in entries.items()
                        if is_deep and entry["type"] == "directory" and path.rstrip("/") != folder]
        # The key of an object may have any text; a file is never written outside of its folder.
        return {name: size for name, size in names.items() if name and ".." not in name.split("/")}

    def _list(self, folder: str) -> list[Mapping[str, Any]]:
        """Returns the entries of a folder; none if it does not exist, as one without objects does not."""
        try:
            return self._fs.ls(folder, detail=True)
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        """Returns the content of a small object, or None if it does not exist."""
        try:
            with self._call("read", name):
                return self._fs.cat_file(self._path(name))
        except StoreError as error:
            if error.kind == "missing":
                return None
            raise

    def write(self, name: str, content: bytes) -> None:
        """Writes a small object, in place of one of that name."""
        with self._call("write", name):
            self._make_folder(name)
            self._fs.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Writes a small object if none of that name exists; returns whether it did."""
        with self._call("create", name):
            self._make_folder(name)
            try:
                if self.is_conditional:
                    self._fs.pipe_file(self._path(name), content, mode="create")
                elif self._fs.exists(self._path(name)):
                    return False
                else:
                    self._fs.pipe_file(self._path(name), content)
            except FileExistsError:
                return False
        return True

    def put(self, name: str, path: str) -> None:
        """Uploads a file, and compares the size of what has arrived."""
        size = os.path.getsize(path)  # before: a journal or an event file may grow meanwhile
        with self._call("put", name):
            self._make_folder(name)
            self._fs.put_file(path, self._path(name))
            arrived = self._fs.info(self._path(name))["size"]
        if arrived < size:
            raise StoreError(f"{name} has {arrived} bytes there, and {size} here")

    def get(self, name: str, path: str) -> None:
        """Downloads an object that was listed to a file, which appears when it is whole.

        Raises:
          RemovedError: it was removed since then.
          ConfigError: the disk here is full.
          StoreError: the store fails.
        """
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with (_raising_removed(name), translated(passing=(_FullDiskError,)),
                  noticing_full_disk(os.path.dirname(path))):
                self._fs.get_file(self._path(name), f"{path}{UNFINISHED}")
            os.replace(f"{path}{UNFINISHED}", path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{path}{UNFINISHED}")

    def stamp(self, name: str) -> str:
        """Returns a text that changes when the object does; raises RemovedError and StoreError as `get` does."""
        with _raising_removed(name), translated():
            return str(self._fs.checksum(self._path(name)))

    def remove(self, names: Collection[str]) -> None:
        """Removes objects in this order; those that do not exist are passed over."""
        for name in names:
            with self._call("remove", name), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def abort_unfinished_uploads(self) -> None:
        """Removes what killed uploads of large files have left of this training in an S3 bucket."""
        if not hasattr(self._fs, "list_multipart_uploads"):
            return
        bucket, _, folder = self._root.partition("/")
        with translated():
            for upload in self._fs.list_multipart_uploads(bucket):
                name = upload["Key"].removeprefix(f"{folder}/")
                if name != upload["Key"] and os.path.dirname(name) in ("", BEST):  # others may train in folders below
                    self._fs.call_s3("abort_multipart_upload", Bucket=bucket, Key=upload["Key"],
                                     UploadId=upload["UploadId"])

    @contextlib.contextmanager
    def _call(self, verb: str, name: str) -> Iterator[None]:
        with self.calls.noting(f"{verb} {name}"), translated():
            yield

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_folder(self, name: str) -> None:
        if self._makes_folders:  # for a store of buckets it would make a bucket
            self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)


class _FullDiskError(ConfigError):
    """This machine has no room for what is fetched."""


@contextlib.contextmanager
def noticing_full_disk(folder: str) -> Iterator[None]:
    """Raises _FullDiskError where its body cannot write to a folder of this machine, for which no store is to blame."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise _FullDiskError("disk_full", f"{folder}: {os.strerror(error.errno)}; make room there, or "
                             "let TMPDIR name a folder with more room") from None


@contextlib.contextmanager
def _raising_removed(name: str) -> Iterator[None]:
    """Raises RemovedError where its body does not find an object that was listed."""
    try:
        yield
    except StoreError as error:
        if error.kind == "missing":
            raise RemovedError(f"{name} was removed in the meantime") from None
        raise


@contextlib.contextmanager
def translated(passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raises StoreError for the errors of a library behind fsspec, except those that are `passing`."""
    try:
        yield
    except passing:
        raise
    except Exception as error:  # noqa: BLE001 (botocore, aiohttp, google.auth: each has classes of its own)
        reason = reason_of(error)
        if isinstance(error, FileNotFoundError):
            kind = "missing"
        elif isinstance(error, PermissionError) or _DENIED.search(
                f"{type(error).__name__} {reason} {error.__cause__}"):  # s3fs leaves the name of the error out
            kind = "denied"
        else:
            kind = ""
        raise StoreError(reason, kind) from None


def reason_of(error: BaseException) -> str:
    """Returns the first line of an error, without credentials."""
    text = without_credentials(str(error).strip() or type(error).__name__)
    return text.splitlines()[0][:_MAX_REASON]


def without_credentials(text: str) -> str:
    """Returns a text without the values of secret environment variables, signatures in URLs, and passwords in them."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET:
            text = text.replace(value, "***")
    text = re.sub(r"(://[^\s/?#]*?):[^\s/?#@]+@", r"\1:***@", text)
    return re.sub(r"(https?://[^\s?]*)\?[^\s'\")]+", r"\1?***", text)


def digest_of(path: str) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
