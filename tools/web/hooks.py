"""Hooks of MkDocs: they bring in what `pages` knows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

# MkDocs runs this file by its path.
sys.path.insert(0, str(Path(__file__).parent))
from pages import PICTURES, ROOT, converted, pages, redirected, reference, site_path

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that lie elsewhere than in docs."""
    for name, text in pages().items():
        files.append(File.generated(config, site_path(name), content=converted(name, text)))
    for picture in sorted((ROOT / "reports").rglob("*")):
        if picture.suffix in PICTURES:
            at = picture.relative_to(ROOT).as_posix()
            files.append(File.generated(config, at, content=picture.read_bytes()))
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead the links of a page of docs to where their targets are on the site."""
    if page.file.generated_by is None:
        return redirected(markdown, f"docs/{page.file.src_uri}")
    return markdown
