"""Show the lines of our docstrings (Shapes, Types, Raises, ...) as a list, not as one paragraph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from griffe import Extension, Object

# The reader of docstrings runs this file by its path.
sys.path.insert(0, str(Path(__file__).parent))
from pages import as_markdown


class Labels(Extension):
    """Rewrites every docstring on the way into the page."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
