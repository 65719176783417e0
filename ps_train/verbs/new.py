"""The verb `new`: a model and a dataset to start from."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from ps_train.config.fields import problem_of_url
from ps_train.errors import ConfigError
from ps_train.runtime import logs
from ps_train.verbs.verb import Verb

_FILES = pathlib.Path(__file__).parent / "new_files"  # NAME.txt: tools must not take them for modules of ps_train


def _new(argv: Sequence[str]) -> None:
    if len(argv) != 1 or argv[0].startswith("-"):
        raise ConfigError(f"`ps_train new` takes the name of one folder, such as `ps_train new mymodel`; got "
                          f"{' '.join(argv) or 'none'}")
    if "://" in argv[0]:
        raise ConfigError(problem_of_url("ps_train new", argv[0]))
    folder = pathlib.Path(argv[0])
    texts = {folder / path.stem: path.read_text(encoding="utf-8") for path in sorted(_FILES.glob("*.txt"))}
    if existing := [str(path) for path in texts if path.exists()]:
        raise ConfigError(f"{', '.join(existing)}: exists; choose another folder, or move these files away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another folder") from None
    logs.show(f"wrote {', '.join(map(str, texts))}; go on with\n"
              f"  cd {folder}\n"
              "  ps_train launch --model=model --dataset=dataset --train_steps=500 --train_dir=run")


NEW = Verb(
    usage="""\
  ps_train new DIR
           Write a model and a dataset to start from.""",
    run=_new, flags_help=lambda _: "It has no flags: give the name of the folder.")
