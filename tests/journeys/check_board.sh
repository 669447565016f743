# Is a board's entry what its policy did? $BOARDS is the folder leaderboards/ of a clone.
set -euo pipefail
mkdir -p boards/fair
cp "$BOARDS/fair/board.yaml" boards/fair/
cp -r "$BOARDS/fair/fcfs" boards/fair/
# One that gives itself a better figure is found out, and nothing else is said of it. (docs/thirty-minutes.ipynb checks the
# entry as it is.)
python - <<'PY'
import csv
from pathlib import Path

path = Path("boards/fair/fcfs/results.csv")
rows = list(csv.DictReader(path.read_text().splitlines()))
rows[0]["ftf_mean"] = str(float(rows[0]["ftf_mean"]) * 0.9)
with path.open("w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
PY
if clustergym leaderboard --root boards check fair fcfs --workers 1 > told 2>&1; then exit 1; fi
cat told
grep ftf_mean told
grep -q 'fair/fcfs: 1 FLAGS' told
