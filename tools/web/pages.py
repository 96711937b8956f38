"""The pages of the site: those outside of docs, and links to code that lead to pages which show it.

A page keeps its links as a reader of the repository needs them. On the site `docs/x.md` is `x.md`, the README
is `index.md`, and a link to a file or folder of code leads to a page that is made for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

import ascendsim

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)#\s]*)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LABEL = re.compile(r"^(\S.*?) {2,}(\S.*)$")
# Folders whose files are all pages.
WHOLE = ("reports", "examples")
PICTURES = {".svg", ".png"}
# How a cell of a notebook shows something, the best form first.
FORMS = ("text/html", "image/svg+xml", "text/plain")
# Stands for a file in a folder, whose page it is.
INSIDE = "index.md"


def site_path(repository_path: str) -> str:
    """Return where a file of the repository stands on the site."""
    path = PurePosixPath(repository_path)
    if path.parts[0] == "docs":
        return str(path.relative_to("docs"))
    if repository_path == "README.md":
        return "index.md"
    if path.suffix == ".md" or path.suffix in PICTURES:
        return repository_path
    shown = path / "index.md" if (ROOT / path).is_dir() else path.with_name(path.name + ".md")
    return str(shown) if path.parts[0] in WHOLE else f"source/{shown}"


def links(text: str, repository_path: str) -> set[str]:
    """Return the paths in the repository that a page links to."""
    here = str(PurePosixPath(repository_path).parent)
    found = (target for _, target, _ in LINK.findall(FENCE.sub("", text)))
    return {normpath(f"{here}/{target}") for target in found if target and "://" not in target}


def redirected(text: str, repository_path: str) -> str:
    """Return a page with its links as they are on the site; the links of other sites stay."""
    here = PurePosixPath(repository_path).parent
    folder = PurePosixPath(repository_path).name == INSIDE
    mine = PurePosixPath(site_path(str(here) if folder else repository_path)).parent

    def changed(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if not target or "://" in target:
            return match[0]
        return f"{before}{relpath(site_path(normpath(f'{here}/{target}')), str(mine))}{after}"

    pieces, at = [], 0
    for fence in FENCE.finditer(text):
        pieces += [LINK.sub(changed, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*pieces, LINK.sub(changed, text[at:])])


def shown(repository_path: str) -> str:
    """Return the page of a file or a folder of code."""
    path = ROOT / repository_path
    title = f"# `{repository_path}`\n\n"
    if path.is_dir():
        inside = sorted(p for p in path.iterdir() if p.suffix in {".py", ".md", ".toml", ".json", ".ipynb"})
        return title + "".join(f"- [{p.name}]({p.name})\n" for p in inside)
    if path.suffix == ".ipynb":
        return title + notebook_page(json.loads(path.read_text()))
    kind = {".py": "python", ".toml": "toml", ".json": "json"}.get(path.suffix, "text")
    return f"{title}````{kind}\n{path.read_text()}````\n"


def notebook_page(notebook: Mapping[str, Any]) -> str:
    """Return a notebook, as its file holds it, in Markdown: its texts, its code, and what its cells show."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = _joined(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data") or {"text/plain": output.get("text", "")}
        form = next(form for form in FORMS if form in data)
        text = _joined(data[form]).rstrip("\n")
        # Without empty lines, which would end the HTML.
        whole = "\n".join(line for line in text.splitlines() if line.strip())
        yield f"```text\n{text}\n```" if form == "text/plain" else whole


def _joined(lines: str | Sequence[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def reference() -> str:
    """Return the page of the public names, whose docstrings are put in by mkdocstrings."""
    names = sorted(name for name in ascendsim.__all__ if not name.startswith("_"))
    return "# Python\n\n" + "".join(f"::: ascendsim.{name}\n\n" for name in names)


def pages() -> dict[str, str]:
    """Return the text of every page that does not lie in docs, by its path in the repository."""
    found: dict[str, str] = {}
    waiting = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", *WHOLE}
    for page in (ROOT / "docs").rglob("*.md"):
        waiting |= links(page.read_text(), str(page.relative_to(ROOT)))
    while waiting:
        name = waiting.pop()
        path = ROOT / name
        if name in found or name.startswith("docs/") or path.suffix in PICTURES or not path.exists():
            continue
        if path.suffix == ".md":
            found[name] = path.read_text()
            waiting |= links(found[name], name)
        elif path.is_dir():
            found[name] = shown(name)
            waiting |= links(found[name], f"{name}/{INSIDE}")
        else:
            found[name] = shown(name)
    return found


def converted(repository_path: str, text: str) -> str:
    """Return a page as the site has it: with other links, or as it is where it is code."""
    path = ROOT / repository_path
    if path.suffix not in {".md", ".ipynb"} and not path.is_dir():
        return text
    return redirected(text, f"{repository_path}/{INSIDE}" if path.is_dir() else repository_path)


def as_markdown(text: str) -> str:
    """Return a docstring in Markdown: a line of "word   what it means" becomes an item of a list."""
    lines: list[str] = []
    for line in text.splitlines():
        match = LABEL.match(line)
        if match:
            if lines and lines[-1] and not lines[-1].startswith(("- ", "  ")):
                lines.append("")
            lines.append(f"- **{match[1]}**: {match[2]}")
        elif line.startswith("    ") and lines and lines[-1].startswith(("- ", "  ")):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
    return "\n".join(lines)
