"""`clustergym replay DIR`: rebuild a result from its decision log and compare digests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from clustergym.inputs.arguments import Parser
from clustergym.inputs.errors import exits_on_bad_input
from clustergym.inputs.paths import atomic_path


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Replay each folder; 0: all equal, 1: one differs, 2: bad input."""
    summary = "Rebuild results from their decision logs and compare digests."
    parser = Parser(prog="clustergym replay", description=summary)
    parser.add_argument("folder", nargs="+", type=Path, help="folder of a finished run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(argv)
    from clustergym.results.replay import replay_folder

    outcomes = {}
    for folder in options.folder:
        outcome = outcomes[str(folder)] = replay_folder(folder)
        word = "equal" if outcome["equal"] else "DIFFERS"
        print(
            f"{folder}: {word}: {outcome['decisions']} decisions replayed, digest {outcome['digest'][:16]}…, "
            f"recorded {str(outcome['recorded_digest'])[:16]}…"
        )
    if options.json is not None:
        with atomic_path(options.json) as temporary:
            temporary.write_text(json.dumps(outcomes, indent=2) + "\n", encoding="utf-8")
        print(f"wrote {options.json}")
    return 0 if all(outcome["equal"] for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
