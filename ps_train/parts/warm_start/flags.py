"""Declares the flags of a warm start, and checks them against each other."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps_train.config import fields
from ps_train.config.groups import OPTIMIZER
from ps_train.errors import ConfigError, Problem


def parse_init_map(flag: str, text: str) -> tuple[tuple[str, str], ...]:
    """Returns the pairs (name in the checkpoint, name in the model) of a text such as "old/:new/,bias:b".

    Raises:
      ConfigError: the text has another form; the error names `flag`.
    """
    pairs = [pair.split(":") for pair in text.split(",")] if text else []
    if not all(len(pair) == 2 and all(pair) and pair[0].endswith("/") == pair[1].endswith("/") for pair in pairs):
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: pairs of a name in the checkpoint and a "
                          "name in the model, both of variables or both of scopes, as in "
                          "old_scope/:new_scope/,old_bias:bias")
    targets = [target for _, target in pairs]
    if duplicates := [target for target in targets if targets.count(target) > 1]:
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}, which fills {duplicates[0]} twice; leave one of "
                          "the pairs out")
    return tuple((source, target) for source, target in pairs)


def parse_names(flag: str, text: str) -> tuple[str, ...]:
    """Returns the names of a list such as "emb,words".

    Raises:
      ConfigError: a name is empty; the error names `flag`.
    """
    names = tuple(text.split(",")) if text else ()
    if not all(names):
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: names of variables, as in emb,words")
    return names


@dataclasses.dataclass(frozen=True)
class WarmStartFlags:
    """The values with which a new training begins."""

    init_checkpoint: str = fields.field(
        "", OPTIMIZER, "Checkpoint, or its folder, from which a new training takes the values of variables.",
        unit="path or URL", unset="none", is_path=False, form=fields.refuse_password)
    init_map: str = fields.field(
        "", OPTIMIZER, "Names in that checkpoint and in the model; a scope ends in /.", unit="there:here,...",
        form=parse_init_map, unset="each variable that has the same name there")
    init_by_modulo: str = fields.field(
        "", OPTIMIZER, "Variables of that checkpoint in several parts, whose rows were looked up with "
        "partition_strategy=\"mod\", the default of tf.nn.embedding_lookup.", unit="name,...", form=parse_names,
        unset="none")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a line for each way in which the flags do not fit each other."""
        given = [name for name in ("init_map", "init_by_modulo") if getattr(self, name)]
        return [Problem("flag_without_effect", f"--{name}: has an effect only with --init_checkpoint; add that flag, "
                        "or leave this one out") for name in given if not self.init_checkpoint]
