"""The tutorial: each file on its pages is saved, each command run, in an empty folder, as a reader does."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests import pages
from tests.processes import REPO

DOCS = REPO / "docs"
TUTORIAL = sorted(path.stem for path in (DOCS / "tutorial").glob("*.md"))


# One of them as its reader has it, with graphs that TensorFlow optimises: it trains in three modes.
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.optimised] * (name == "first-run")) for name in TUTORIAL])
def test_a_page_of_the_tutorial_works_as_it_stands(start_process, tmp_path, name):
    """Its files, its commands one after the other, and their exit codes."""
    if name == "from-estimator" and importlib.util.find_spec("tensorflow_estimator") is None:
        pytest.skip("the page needs the extra `estimator`")
    reader = pages.Reader(tmp_path, start_process)
    reader.follow((DOCS / f"tutorial/{name}.md").read_text(encoding="utf-8"))
    assert reader.num_run >= 2


def test_the_front_page_begins_as_the_tutorial_does():
    """So its command is run, too."""
    front, first = ((DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "tutorial/first-run.md"))
    [_, command] = re.findall(r"```bash\n(.*?)```", front, re.DOTALL)  # the first installs
    assert command in first
