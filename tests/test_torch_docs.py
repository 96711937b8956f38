"""Does docs/torch.md print what it says?"""

from tests.test_readme import BLOCKS, ROOT, printed_by
from tests.torch_samples import torch

PAGE = ROOT / "docs" / "torch.md"


def test_the_page_prints_what_it_says(update):
    text = PAGE.read_text()
    blocks = list(BLOCKS.finditer(text))
    assert text.count("```python") == len(blocks) >= 6
    with torch.random.fork_rng():
        made = [printed_by(block["kind"], block["code"]) for block in blocks]
    if update:
        for block, printed in zip(reversed(blocks), reversed(made), strict=True):
            text = text[: block.start("printed")] + printed + text[block.end("printed") :]
        PAGE.write_text(text)
        blocks = list(BLOCKS.finditer(text))
    for block, printed in zip(blocks, made, strict=True):
        assert block["printed"] == printed, "`pytest tests/test_torch_docs.py --update` rewrites the outputs"
