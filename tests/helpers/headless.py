"""A page as a browser without a window shows it."""

import shutil
import subprocess

import pytest

needs_chromium = pytest.mark.skipif(
    not shutil.which("chromium"), reason="no chromium: pages are not opened in a browser"
)


def opened(text, folder):
    """Return the page as it stands after its scripts have run, and what the browser's log says.

    text     HTML
    folder   an empty one, for the page and for what the browser keeps
    """
    path = folder / "page.html"
    path.write_text(text)
    words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        "--enable-logging=stderr",
    ]
    done = subprocess.run(
        [*words, f"--user-data-dir={folder / 'profile'}", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, done.stderr
