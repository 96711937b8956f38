"""Does docs/torch.md print what it says?"""

from tests.documents.test_readme import BLOCKS, ROOT, check_what_is_printed
from tests.helpers.torch_samples import torch

PAGE = ROOT / "docs" / "torch.md"


def test_the_page_prints_what_it_says(update):
    with torch.random.fork_rng():
        check_what_is_printed(PAGE, {"python"}, update)


def test_every_piece_of_code_says_what_it_prints():
    text = PAGE.read_text()
    assert text.count("```python") == len(list(BLOCKS.finditer(text)))
