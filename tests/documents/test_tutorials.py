"""Do the tutorials print what they say?"""

import pytest

from tests.documents.test_readme import BLOCKS, ROOT, check_what_is_printed

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("fresh_store")
def test_a_tutorial_prints_what_it_says(page, update):
    check_what_is_printed(page, {"console", "python"}, update)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_piece_of_code_says_what_it_prints(page):
    text = page.read_text()
    assert text.count("```python") + text.count("```console") == len(list(BLOCKS.finditer(text)))


def test_there_is_one_for_each_kind_of_user():
    assert [page.stem for page in PAGES] == ["architect", "precision", "tiling"]
