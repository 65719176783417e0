"""A hook of mkdocs: pages that lie outside docs/ become pages of the site, and links to them work.

    ARCHITECTURE.md --> architecture.md     benchmarks/README.md --> benchmarks.md     ...

On GitHub the same links lead to the files themselves. The pages of decisions are added to the navigation.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_REPO = pathlib.Path(__file__).resolve().parents[1]
_DOCS = "docs"
# File of the repository -> page of the site.
_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples/index.md",
    "examples/churn/README.md": "examples/churn.md",
    "examples/movies/README.md": "examples/movies.md",
    "examples/word2vec/README.md": "examples/word2vec.md",
}
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages of decisions to the navigation."""
    found = sorted((_REPO / _DOCS / "decisions").glob("*.md"))
    decisions = [path.relative_to(_REPO / _DOCS).as_posix() for path in found if path.name != "README.md"]
    code = next(entry["The code"] for entry in config.nav if "The code" in entry)
    next(entry["Decisions"] for entry in code if "Decisions" in entry).extend(decisions)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that lie outside docs/, but the README, whose place index.md has."""
    for source, page in _PAGES.items():
        if source != "README.md":
            files.append(File.generated(config, page, content=(_REPO / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files of the repository into links to pages of the site."""
    sources = {site: source for source, site in _PAGES.items() if site != "index.md"}
    here = sources.get(page.file.src_uri, f"{_DOCS}/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
        return posixpath.relpath(_site_page(target), posixpath.dirname(page.file.src_uri) or ".")

    return _LINK.sub(replace, markdown)


def _site_page(target: str) -> str:
    """Returns the page for a file of the repository, or what it is called there if it has none."""
    if target.rstrip("/") == f"{_DOCS}/decisions":
        return "decisions/README.md"
    return _PAGES.get(target, os.path.relpath(target, _DOCS))
