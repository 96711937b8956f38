"""`ascendsim study ...`: one subcommand a study."""

from __future__ import annotations

from typing import Any


def add_study(choices: Any) -> dict[str, Any]:
    """Add the command with one subcommand a study, and return their parsers by name."""
    from ascendsim.cli.studies.hardware import add_codesign, add_hardware
    from ascendsim.cli.studies.precision import add_precision
    from ascendsim.cli.studies.tiling import add_tiling

    study = choices.add_parser(
        "study",
        help="questions over many calls: what a change of the hardware buys, what beats a plan",
        description="Ask one question of many calls. Each study prints one sentence that answers, then the "
        "table; with --out an HTML page.",
        allow_abbrev=False,
    )
    kinds = study.add_subparsers(dest="study_name", required=True, metavar="STUDY")
    return {
        "study": study,
        "study hardware": add_hardware(kinds),
        "study precision": add_precision(kinds),
        "study tiling": add_tiling(kinds),
        "study codesign": add_codesign(kinds),
    }
