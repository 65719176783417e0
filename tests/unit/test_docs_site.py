"""The docs site, as far as `mkdocs build --strict` does not check it."""

from __future__ import annotations

import re

import pytest

from tests.processes import REPO

SITE = (REPO / "mkdocs.yml").read_text(encoding="utf-8")


def test_search_works_from_a_folder_without_another_host():
    """The plugin would name a script of another host, unless one with this name is there."""
    assert re.search(r"^  - offline\b", SITE, re.MULTILINE)
    named = re.search(r"^  polyfills: \[(\S*iframe-worker\S*)\]", SITE, re.MULTILINE)[1]
    assert "://" not in named and (REPO / "docs" / named).is_file()


@pytest.mark.parametrize("setting", ["extra_css", "extra_javascript"])
def test_the_styles_and_scripts_are_there(setting):
    """mkdocs only writes a link to them."""
    assert (REPO / "docs" / re.search(rf"^{setting}: \[(\S+)\]", SITE, re.MULTILINE)[1]).is_file()


@pytest.mark.parametrize(("typed", "searched"), [
    ("--batch_size", "batch_size"), ("sync --min_replicas", "sync min_replicas"), ("mini-batch -table", None),
    ("--", None)])
def test_a_flag_is_searched_without_its_hyphens(typed, searched):
    """With them nothing is found; what a person may mean by a hyphen elsewhere stays."""
    script = (REPO / "docs/search-flags.js").read_text(encoding="utf-8")
    pattern = re.search(r"replace\(/(.*)/g, \"\$1\"\)", script)[1]
    assert re.sub(pattern, r"\1", typed) == (searched or typed)


def test_a_flag_is_one_word_in_texts():
    """By the patterns of scripts/docs_pages.py: each flag, but not in blocks of code, tags, rules or dashes."""
    hook = (REPO / "scripts/docs_pages.py").read_text(encoding="utf-8")
    flag, no_text = (re.compile(re.search(rf'^{name} = re.compile\(r"(.*?)"[,)]', hook, re.MULTILINE)[1], re.DOTALL)
                     for name in ("_FLAG", "_NO_TEXT"))
    html = ('<p title="--a">With --sync_replicas, <code>run --x=1</code> -- not a---b.</p>'
            '<pre class="code"><code>run\n--y=2</code></pre> (--z)')
    found = [name for text in no_text.split(html)[::2] for name in flag.findall(text)]
    assert found == ["--sync_replicas", "--x", "--z"]
    assert ".flag { white-space: nowrap; }" in (REPO / "docs/site.css").read_text(encoding="utf-8")


def test_no_section_of_flags_has_the_anchor_of_a_flag():
    """The section `Optimizer` and --optimizer."""
    assert re.search(r"#section-\{slugify\(", (REPO / "scripts/docs_pages.py").read_text(encoding="utf-8"))
    assert re.search(r"^  - attr_list$", SITE, re.MULTILINE)
    assert "| `--section" not in (REPO / "docs/flags.md").read_text(encoding="utf-8")


def test_every_row_of_flags_gets_an_anchor():
    """By the pattern of scripts/docs_pages.py."""
    hook = (REPO / "scripts/docs_pages.py").read_text(encoding="utf-8")
    pattern = re.search(r'_FLAG_ROW = re.compile\(r"(.*)", re.MULTILINE\)', hook)[1]
    page = (REPO / "docs/flags.md").read_text(encoding="utf-8")
    names = re.findall(pattern, page, re.MULTILINE)
    assert r'<h4 class="flag" id="\1">' in hook  # search leads to headings only
    assert len(names) == len(set(names)) == page.count("\n| `--") > 100


def test_a_notebook_becomes_a_page():
    """Its text as it is, its code in blocks, and what it has printed and drawn below each."""
    pytest.importorskip("mkdocs", reason="needs mkdocs, of the extra [docs]")
    from scripts.docs_pages import notebook_text  # noqa: PLC0415 it needs mkdocs

    notebook = (REPO / "examples/notebook/training.ipynb").read_text(encoding="utf-8")
    text = notebook_text(notebook)
    assert text.startswith("# A training in a notebook\n")
    assert "```python\nimport json\n" in text and re.search(r"```text\nstep \d+: .*accuracy 0.9", text)
    assert text.count('src="data:image/png;base64,') == 1 and len(notebook) < 40000
