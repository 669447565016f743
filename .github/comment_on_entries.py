"""Check the entries of boards that a pull request adds or changes, and write what is to be said of them.

    python .github/comment_on_entries.py BASE COMMENT.md [--root leaderboards]

BASE is the commit that the pull request is to be merged into. The exit status is 2 if an entry does not
replay, if another file changed, or if there is no entry; COMMENT.md says why.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = re.compile(r"[\w.-]+")


def list_changes(base: str, root: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (board, entry) of each entry that differs from a commit, and the other files that do."""
    command = ["git", "diff", "--name-only", "--no-renames", "-z", base]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    entries, others = set[tuple[str, str]](), []
    for path in (Path(name) for name in names if name):
        inside = path.relative_to(root).parts if path.is_relative_to(root) else ()
        if len(inside) > 2 and all(NAME.fullmatch(part) for part in inside[:2]):
            entries.add((inside[0], inside[1]))
        # `clustergym leaderboard render` writes a board's page anew.
        elif not (len(inside) == 2 and inside[1] == "README.md"):
            others.append(str(path))
    return sorted(entries), others


def run_command(root: Path, *words: str) -> tuple[int, object, str]:
    """Run `clustergym leaderboard`; return its status, what it wrote as JSON, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", "clustergym", "leaderboard", "--root", str(root), *words]
        done = subprocess.run([*command, "--json", str(out)], capture_output=True, text=True)
        found = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else None
        return done.returncode, found, done.stdout + done.stderr


def describe_entry(root: Path, board: str, entry: str) -> tuple[bool, str]:
    """Check an entry; return whether it is as it says, and a paragraph about it."""
    title = f"### {board}/{entry}\n\n"
    if not (root / board / entry / "entry.yaml").is_file():
        return False, f"{title}has no entry.yaml: `clustergym leaderboard add` writes it.\n"
    status, _, printed = run_command(root, "check", board, entry)
    if status:
        failed = f"does not pass `clustergym leaderboard check {board} {entry}`"
        return False, f"{title}{failed}:\n\n````text\n{printed}````\n"
    _, rows, _ = run_command(root, "table", board)
    assert isinstance(rows, list)
    mine = next(one for one in rows if one["policy"] == entry)["overall"]
    if mine is None:
        return True, f"{title}replays; the board has no figures of its reference beside it yet.\n"
    low, high = (mine[key] for key in ("low", "high"))
    interval = "too few seeds" if low is None else f"{low:.2f} to {high:.2f}"
    told = f"Its {mine['compare']} to the reference is {mine['value']:.2f} ({interval}, n {mine['seeds']})."
    return True, f"{title}replays. {told}\n"


def main() -> int:
    """Check all changed entries, and write the comment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("comment", type=Path)
    parser.add_argument("--root", type=Path, default=Path("leaderboards"))
    options = parser.parse_args()
    entries, others = list_changes(options.base, options.root)
    found = [describe_entry(options.root, board, entry) for board, entry in entries]
    paragraphs = [text for _, text in found] or ["No entry of a board has changed.\n"]
    if others:
        listed = "".join(f"- `{name}`\n" for name in others[:20])
        paragraphs.append(f"With an entry nothing else may change, but these files did:\n\n{listed}")
    options.comment.write_text("## Entries\n\n" + "\n".join(paragraphs), encoding="utf-8")
    return 0 if found and all(good for good, _ in found) and not others else 2


if __name__ == "__main__":
    sys.exit(main())
