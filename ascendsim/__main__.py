"""Run the command as `python -m ascendsim`."""

import sys

from ascendsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
