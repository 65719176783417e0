"""All tables of names in one: see the modules that they come from."""

from __future__ import annotations

from ps_train.parts.legacy.names import renamed
from ps_train.parts.legacy.names.contrib import advice, layer_names
from ps_train.parts.legacy.names.contrib import names as contrib_names
from ps_train.parts.legacy.names.contrib.learn import names as learn_names
from ps_train.parts.legacy.names.examples import names as example_names
from ps_train.parts.legacy.names.namespace import Tables

TABLES = Tables(
    names={**renamed.NAMES, **example_names.NAMES, **contrib_names.NAMES, **layer_names.NAMES, **learn_names.NAMES},
    modules={**example_names.MODULES, **contrib_names.MODULES, **layer_names.MODULES, **learn_names.MODULES},
    advice={**renamed.ADVICE, **example_names.ADVICE, **advice.ADVICE, **learn_names.ADVICE},
).with_parents()
