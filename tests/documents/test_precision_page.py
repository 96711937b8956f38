"""Does docs/precision.md print what it says, and do digits show what a loss scale does?"""

import os
import re
import subprocess
import sys

import pytest

from tests.documents.test_readme import BLOCKS, ROOT, check_what_is_printed

PAGE = ROOT / "docs" / "precision.md"
EXAMPLE = ROOT / "examples" / "09_recorded_digits.py"
# The answer, its reason, and the table of shares; the modes between them are those of any study.
PARTS = re.compile(r"^(On 910B2.*?)The rule stat.*?(What formats make.*?)\n\n", re.DOTALL | re.MULTILINE)


def test_the_page_prints_what_it_says(update):
    check_what_is_printed(PAGE, {"console"}, update)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """What the example prints of recorded digits."""
    pytest.importorskip("torch", reason="torch is not installed: nothing can be recorded")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: its digits cannot be read")
    folder = tmp_path_factory.mktemp("digits")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    words = [sys.executable, "-W", "error", str(EXAMPLE)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_loss_scale_changes_the_verdict_on_digits(digits):
    """The seed, the step and the network are the example's."""
    answer = " ".join(digits.split())
    assert "is float16 with cubeMathType 0/1/2/3 and a loss scale of 4096" in answer
    assert "with a loss scale of 1 the mode fails" in answer
    told = re.search(r"([\d.]+)% of the non-zero grad_output are subnormal in float16", answer)
    assert float(told[1]) > 50
    rows = re.findall(r"grad_output +float16 +(1|4096) +([\d.]+)%", digits)
    shares = {scale: float(share) for scale, share in rows}
    assert shares["1"] > 90
    assert shares["4096"] < 1


def test_the_page_shows_what_the_example_prints(digits, update):
    shown = "\n".join(part.rstrip() + "\n" for part in PARTS.search(digits).groups())
    text = PAGE.read_text()
    start = text.index("```text\n", text.index("## Recorded tensors")) + len("```text\n")
    end = text.index("```", start)
    if update:
        PAGE.write_text(text[:start] + shown + text[end:])
    assert PAGE.read_text()[start : start + len(shown)] == shown
    assert len(list(BLOCKS.finditer(PAGE.read_text()))) == 1
