"""`clustergym replay DIR`: rebuild a result from its decision log and compare digests."""

from __future__ import annotations

import sys
from pathlib import Path

from clustergym.common.errors import Parser, exits_on_bad_input
from clustergym.common.writing import write_json


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym replay`; return 0 if all results are reproduced, 1 if one is not, 2 for bad input."""
    summary = "Rebuild results from their decision logs and compare digests."
    parser = Parser(prog="clustergym replay", description=summary)
    parser.add_argument("folder", nargs="+", type=Path, help="folder of a finished run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(argv)
    from clustergym.results.folder_replay import find_rebuilder, replay_folder

    outcomes = {}
    for folder in options.folder:
        outcome = outcomes[str(folder)] = replay_folder(folder, find_rebuilder(folder))
        word = "equal" if outcome["equal"] else "DIFFERS"
        print(
            f"{folder}: {word}: {outcome['decisions']} decisions replayed, digest {outcome['digest'][:16]}…, "
            f"recorded {str(outcome['recorded_digest'])[:16]}…"
        )
    write_json(options.json, outcomes)
    if options.json is not None:
        print(f"wrote {options.json}")
    return 0 if all(outcome["equal"] for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
