"""Does docs/studies.md print what it says?"""

import pytest

from tests.documents.test_readme import BLOCKS, ROOT, check_what_is_printed

PAGE = ROOT / "docs" / "studies.md"


@pytest.mark.usefixtures("fresh_store")
def test_the_page_prints_what_it_says(update):
    check_what_is_printed(PAGE, {"console", "python"}, update)


def test_every_piece_of_code_says_what_it_prints():
    text = PAGE.read_text()
    blocks = len(list(BLOCKS.finditer(text)))
    assert text.count("```python") + text.count("```console") == blocks
