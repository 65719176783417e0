"""The verb `new`: a model and a dataset to start from."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Sequence

from ps_train.config.fields import problem_of_url
from ps_train.errors import ConfigError, refuse
from ps_train.runtime import logs
from ps_train.verbs.verb import Verb

_FILES = pathlib.Path(__file__).parent / "new_files"  # NAME.txt: tools must not take them for modules of ps_train


def _new(argv: Sequence[str]) -> None:
    if len(argv) != 1 or argv[0].startswith("-"):
        raise ConfigError("folder_name_missing", "`ps_train new` takes the name of one folder, such as `ps_train new "
                          f"mymodel`; got {' '.join(argv) or 'none'}")
    if "://" in argv[0]:
        refuse([problem_of_url("ps_train new", argv[0])])
    folder = pathlib.Path(argv[0])
    texts = {folder / path.stem: path.read_text(encoding="utf-8") for path in sorted(_FILES.glob("*.txt"))}
    if existing := [str(path) for path in texts if path.exists()]:
        raise ConfigError("file_exists",
                          f"{', '.join(existing)}: already there; choose another folder, or move these files away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError("folder_not_writable",
                          f"cannot write to {folder}: {error.strerror}; choose another folder") from None
    logs.show(f"wrote {', '.join(map(str, texts))}; go on with\n"
              f"  cd {shlex.quote(str(folder))}\n"
              "  ps_train launch --model=model --dataset=dataset --train_steps=500 --train_dir=run")


NEW = Verb(
    usage="""\
  ps_train new DIR
           Write a model and a dataset to start from.""",
    run=_new, flags_help=lambda _: "It has no flags: give the name of the folder.")
