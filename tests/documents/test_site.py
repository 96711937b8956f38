"""Do the pages lead where they say, once they are a site?"""

import re
import tomllib
from pathlib import Path

import pytest

import ascendsim
from web.labels import as_markdown
from web.pages import ROOT, converted, links, pages, redirected, reference, shown, site_path


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("docs/timing.md", "timing.md"),
        ("README.md", "index.md"),
        ("CHANGELOG.md", "CHANGELOG.md"),
        ("reports/validation.png", "reports/validation.png"),
        ("examples", "examples/index.md"),
        ("examples/05_many_estimates.py", "examples/05_many_estimates.py.md"),
        ("ascendsim/parallel.py", "source/ascendsim/parallel.py.md"),
        ("ascendsim/timing", "source/ascendsim/timing/index.md"),
    ],
)
def test_every_file_has_a_place_on_the_site(here, there):
    assert site_path(here) == there


def test_links_keep_their_heading_and_other_sites_stay():
    text = "[a](../README.md#words) [b](https://x.org/y) [c](#here) [d](../ascendsim/parallel.py)"
    expected = "[a](index.md#words) [b](https://x.org/y) [c](#here) [d](source/ascendsim/parallel.py.md)"
    assert redirected(text, "docs/timing.md") == expected


def test_what_stands_in_code_is_no_link():
    text = "```python\nx[0](y)\n```\n[a](z.md)"
    assert links(text, "docs/x.md") == {"docs/z.md"}
    assert redirected(text, "README.md") == "```python\nx[0](y)\n```\n[a](z.md)"


def test_a_page_of_code_shows_the_file_and_a_folder_lists_its_files():
    code = shown("examples/05_many_estimates.py")
    assert (ROOT / "examples/05_many_estimates.py").read_text() in code
    assert converted("examples/05_many_estimates.py", code) == code
    assert "[parallel.py](parallel.py.md)" in converted("ascendsim", shown("ascendsim"))


def test_every_page_that_is_linked_to_is_there():
    made = pages()
    for name, text in {
        **made,
        **{str(p.relative_to(ROOT)): p.read_text() for p in (ROOT / "docs").rglob("*.md")},
    }.items():
        if not name.endswith(".md"):
            continue
        for target in links(text, name):
            assert target in made or (ROOT / target).is_file(), f"{name} links to {target}"


def test_every_page_of_docs_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = set(re.findall(r": (\S+\.md)$", menu, re.MULTILINE))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= listed
    assert {f"reports/{page.name}" for page in (ROOT / "reports").glob("*.md")} <= listed


def test_the_reference_has_every_public_name():
    assert all(f"::: ascendsim.{name}\n" in reference() for name in ascendsim.__all__ if name[0] != "_")


def test_labelled_lines_of_a_docstring_become_a_list():
    text = "Do it.\n\nShapes   a (m, k)\nRaises   ShapeError if not;\n         or else"
    items = "- **Shapes**: a (m, k)\n- **Raises**: ShapeError if not;\n  or else"
    assert as_markdown(text) == "Do it.\n\n" + items


def test_the_site_is_built_by_make_and_its_tools_have_bounds():
    extras = tomllib.loads(Path(ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(re.search(r">=.*<", line) for line in extras["site"])
