"""Show the lines of our docstrings (Shapes, Types, Raises, ...) as lines, not as one paragraph."""

from __future__ import annotations

import re

LABEL = re.compile(r"^(\S.*?) {2,}(\S.*)$")


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
