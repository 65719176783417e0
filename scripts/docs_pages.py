"""A hook of mkdocs: pages that lie outside docs/ become pages of the site, and links to them work.

    ARCHITECTURE.md --> architecture.md     benchmarks/README.md --> benchmarks.md     ...

On GitHub the same links lead to the files themselves. The pages of decisions are added to the navigation. On the page
of flags each row gets an anchor: flags.md#batch_size. Its headings have others, such as flags.md#section-optimizer.
A flag in a text is marked, so that site.css can keep it on one line: a browser would break it after its hyphens.
"""

from __future__ import annotations

import json
import os
import pathlib
import posixpath
import re

from markdown.extensions.toc import slugify
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
    "examples/by_feature/README.md": "examples/by_feature.md",
    "examples/churn/README.md": "examples/churn.md",
    "examples/movies/README.md": "examples/movies.md",
    "examples/notebook/training.ipynb": "examples/notebook.md",
    "examples/word2vec/README.md": "examples/word2vec.md",
}
_FLAG_ROW = re.compile(r"^\| `--(\w+)` \|", re.MULTILINE)
_FLAG = re.compile(r"(?<![\w-])--\w+")
_NO_TEXT = re.compile(r"(<pre\b.*?</pre>|<[^>]*>)", re.DOTALL)  # blocks of code, which have their own lines, and tags
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
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
            text = (_REPO / source).read_text(encoding="utf-8")
            text = notebook_text(text) if source.endswith(".ipynb") else text
            files.append(File.generated(config, page, content=text))
    return files


def notebook_text(notebook: str) -> str:
    """Returns a notebook as Markdown: its code in blocks, and below each what it has printed and drawn."""
    blocks = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        blocks.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                image = data["image/png"].strip()
                blocks.append(f'<img alt="what the cell draws" src="data:image/png;base64,{image}">')
            else:
                text = "".join(output.get("text") or data["text/plain"])
                blocks.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(blocks)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files of the repository into links to pages of the site, and gives each flag an anchor."""
    sources = {site: source for source, site in _PAGES.items() if site != "index.md"}
    here = sources.get(page.file.src_uri, f"{_DOCS}/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
        return posixpath.relpath(_site_page(target), posixpath.dirname(page.file.src_uri) or ".")

    if page.file.src_uri == "flags.md":
        # There is a flag --optimizer, too.
        markdown = _HEADING.sub(lambda found: f"{found[0]} {{ #section-{slugify(found[1], '-')} }}", markdown)
        # A heading is what search leads to.
        markdown = _FLAG_ROW.sub(r'| <h4 class="flag" id="\1"><a href="#\1"><code>--\1</code></a></h4> |', markdown)
    return _LINK.sub(replace, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks the flags in a text."""
    parts = _NO_TEXT.split(html)
    parts[::2] = [_FLAG.sub(r'<span class="flag">\g<0></span>', text) for text in parts[::2]]
    return "".join(parts)


def _site_page(target: str) -> str:
    """Returns the page for a file of the repository, or what it is called there if it has none."""
    if target.rstrip("/") == f"{_DOCS}/decisions":
        return "decisions/README.md"
    return _PAGES.get(target, os.path.relpath(target, _DOCS))
