"""The loss of each step of a training.

    a folder with event files    the scalar with the tag
    a file that ends with .csv   a column `step` and one with the tag, or `value`, as TensorBoard's download has it
    any other file               a log, which may be compressed by gzip: each line with a step and a loss

A step that occurs several times, as in the log of several workers, counts with the mean of its losses.
"""

from __future__ import annotations

import csv
import gzip
import os
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator

from ps_train.errors import DataError
from ps_train.parts.compare.flags import CompareConfig, parse_pattern

_MAX_LISTED = 8
_NUMBER = r"""["']?\s*[:=]?\s*(?P<{name}>[-+]?(?:(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf))"""
# Each may come first: "loss = 0.49, step = 171", "step 100 of 200  loss 0.457", {"step": 100, "loss": 0.457}.
_STEP = re.compile(r"\b(?:global[_ ]?)?steps?" + _NUMBER.format(name="step"), re.IGNORECASE)
# Lines of an Estimator, of `train`, of a loop of `keras`, and of `--log_format=json`: of no step of training.
_EVALUATION = re.compile(
    r'Saving dict for global step|evaluation at step \d|, on held-out data: |"message": .*"loss": \S+, "metrics": \{')
_LOSS = re.compile(r"\bloss" + _NUMBER.format(name="loss"), re.IGNORECASE)


def read_losses(place: str, config: CompareConfig) -> dict[int, float]:
    """Returns step -> loss, in the order of steps.

    Raises:
      DataError: the place cannot be read, or has no losses.
    """
    try:
        if os.path.isdir(place):
            found = _of_event_files(place, config.tag)
        elif place.lower().endswith(".csv"):
            found = _of_csv(place, config.tag)
        else:
            found = _of_log(place, config.pattern)
        by_step: dict[int, list[float]] = {}
        for step, loss in found:
            by_step.setdefault(step, []).append(loss)
    except (OSError, EOFError, zlib.error) as error:  # the last two of a compressed file that is damaged
        reason = getattr(error, "strerror", None) or error
        raise DataError("input_file_unreadable", f"cannot read {place}: {reason}") from None
    except UnicodeDecodeError as error:
        raise DataError("input_file_unreadable", f"cannot read {place}: {error}; save it as UTF-8") from None
    except csv.Error as error:  # as behind a quotation mark that has no other one
        raise DataError("input_file_unreadable", f"cannot read {place}: {error}; leave other columns than the step and "
                        "the loss out") from None
    if not by_step:
        raise DataError("no_losses", f"{place}: no line has a step and a loss; give --pattern, such as "
                        r"--pattern='After (?P<step>\d+) steps, cost (?P<loss>\S+)'")
    # Not `fmean`, which refuses infinity beside minus infinity.
    return {step: sum(losses) / len(losses) for step, losses in sorted(by_step.items())}


def _of_event_files(folder: str, tag: str) -> Iterator[tuple[int, float]]:
    from ps_train.parts.report import curves  # noqa: PLC0415 (TensorFlow, which a log does not need)

    series = curves.read_series(folder, max_points=None)
    if not series:
        # As `ps_train keras` and most of TensorFlow 2 write them: in train/ and validation/.
        below = sorted({str(path.parent) for path in pathlib.Path(folder).glob("*/events.out.tfevents.*")})
        wanted = " or ".join(below[:_MAX_LISTED]) or "the folder with those of the training"
        raise DataError("no_losses", f"{folder}: no event file with values, events.out.tfevents.*; give {wanted}")
    for point in series[_chosen(tag, series, folder)]:
        yield point.step, point.value


def _chosen(tag: str, names: Iterable[str], place: str) -> str:
    """Returns the tag, or the one that is the loss if none is given."""
    losses = [name for name in names if name.lower().endswith("loss")]
    found = [name for name in names if name == (tag or "loss")] or ([] if tag else losses)
    if len(found) != 1:
        got = f"no {tag!r}" if tag else f"{len(losses)} tags that end with 'loss'"
        raise DataError("no_losses", f"{place}: got {got}; allowed for --tag: {', '.join(sorted(names))}")
    return found[0]


def _of_csv(path: str, tag: str) -> Iterator[tuple[int, float]]:
    with open(path, encoding="utf-8-sig", newline="") as file:  # Excel begins a file with a BOM
        rows = csv.DictReader(file)
        columns = {name.strip().lower(): name for name in rows.fieldnames or ()}
        if "step" not in columns:
            raise DataError("csv_header_missing", f"{path}, line 1: got {', '.join(columns) or 'nothing'}; it must "
                            "name the columns, one of them `step`")
        column = columns["value"] if "value" in columns and not tag else _chosen(tag, columns.values(), path)
        for row in rows:
            try:
                yield _whole(row[columns["step"]]), float(row[column])
            except (TypeError, ValueError):
                raise DataError("bad_line", f"{path}, line {rows.line_num}: got {row[columns['step']]!r} and "
                                f"{row[column]!r}; expected a step and a number") from None


def _of_log(path: str, pattern: str) -> Iterator[tuple[int, float]]:
    searches = [compiled] * 2 if (compiled := parse_pattern("--pattern", pattern)) else [_STEP, _LOSS]
    opened = gzip.open if path.endswith(".gz") else open  # as logrotate leaves it
    with opened(path, "rt", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            step, loss = (search.search(line) for search in searches)
            if step and loss and step["step"] and loss["loss"] and (pattern or not _EVALUATION.search(line)):
                try:
                    yield _whole(step["step"].replace(",", "")), float(loss["loss"].replace(",", ""))
                except ValueError:
                    raise DataError("bad_line", f"{path}, line {number}: got {step['step']!r} and {loss['loss']!r}; "
                                    "expected a step and a number: mend --pattern") from None


def _whole(text: str) -> int:
    """Returns a step, which some programs write as `100.0`; raises ValueError for anything else."""
    try:
        return int(text)
    except ValueError:
        if (number := float(text)).is_integer():
            return int(number)
        raise
