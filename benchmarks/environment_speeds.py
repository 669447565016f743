"""Write the tables of docs/environments/README.md from what `clustergym bench environments --json` measured.

clustergym bench environments --only burst,priority,knobs,tenants,capacity,rack-told --json environments.json
python benchmarks/environment_speeds.py environments.json

Rows of environments that were not measured stay as they are, and so does what is said of their load.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from clustergym.bench.environments import HEADERS, OTHERS, SINGLE_HEADERS, report

PAGE = Path(__file__).parents[1] / "docs" / "environments" / "README.md"
BLOCK = re.compile(r"(?<=<!-- speeds -->\n).*?(?=<!-- end -->)", re.DOTALL)
CELLS = {len(HEADERS), len(SINGLE_HEADERS)}


def read_rows(text: str) -> dict[tuple[str, ...], list[str]]:
    """Return the cells of each row of the tables, by id and, of vectors, number."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    own = [
        cells for cells in rows if len(cells) in CELLS and not re.match(r"environment|one env|---", cells[0])
    ]
    return {tuple(cells[: 2 if len(cells) == len(HEADERS) else 1]): cells for cells in own}


def merge(before: str, made: str) -> str:
    """Return the tables that were made, with the rows that only those before have in front."""
    new = read_rows(made)
    kept = [cells for key, cells in read_rows(before).items() if key not in new]
    for headers in (HEADERS, SINGLE_HEADERS):
        lines = "".join(f"| {' | '.join(cells)} |\n" for cells in kept if len(cells) == len(headers))
        made = re.sub(rf"(\| {headers[0]} \|.*\n\| -.*\n)", lambda head, own=lines: head[0] + own, made)
    return made


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="the file of --json")
    figures = json.loads(parser.parse_args().figures.read_text(encoding="utf-8"))
    measured = [row["id"] for row in (*figures["rows"], *figures["others"]) if row["id"] not in OTHERS]
    ids = dict.fromkeys(f"`{name.removeprefix('ClusterGym/')}`" for name in measured)
    said = f" {', '.join(ids)}: on {figures['cores']} cores at a load of {figures['load']:.1f}.\n\n"
    page = PAGE.read_text(encoding="utf-8")
    made = BLOCK.sub(
        lambda old: old[0].partition("|")[0].strip() + said + merge(old[0], report(figures)), page
    )
    PAGE.write_text(made, encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
