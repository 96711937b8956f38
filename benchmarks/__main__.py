"""Run every benchmark, one after another: `python -m benchmarks`, or with the names of some of them."""

from __future__ import annotations

import os
import sys
from importlib import import_module

NAMES = (
    "accumulation",
    "engine",
    "gradients",
    "interval",
    "l2",
    "start",
    "studies",
    "timing",
    "tuning",
    "whole_calls",
    "tilings",
)


def main() -> int:
    """Run the benchmarks named on the command line, or all."""
    asked = sys.argv[1:] or list(NAMES)
    unknown = [name for name in asked if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in asked:
        print(f"== {name}", flush=True)
        import_module(f"benchmarks.{name}").main()
        print(flush=True)
    return 0


if __name__ == "__main__":
    # One thread, as the targets are stated; the variable counts only before numpy starts its threads.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]])
    sys.exit(main())
