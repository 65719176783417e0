"""All tables of names in one: see the modules they come from."""

from __future__ import annotations

from ps_train.legacy.names import renamed
from ps_train.legacy.names.namespace import Tables

TABLES = Tables(
    names={**renamed.NAMES},
    modules={**renamed.MODULES},
    advice={**renamed.ADVICE},
).with_parents()
