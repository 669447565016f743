"""Write the tables of docs/environments/README.md from what `clustergym bench environments --json` measured.

python benchmarks/environment_speeds.py environments.json
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from clustergym.bench.environments import report

PAGE = Path(__file__).parents[1] / "docs" / "environments" / "README.md"
BLOCK = re.compile(r"(?<=<!-- speeds -->\n).*?(?=<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="the file of --json")
    figures = json.loads(parser.parse_args().figures.read_text(encoding="utf-8"))
    said = f"Measured on {figures['cores']} cores at a load of {figures['load']:.1f}.\n\n"
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda _: said + report(figures), page), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
