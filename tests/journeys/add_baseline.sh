# A board of one's own, and a baseline on it. An entry that gives itself a better figure is found out.
set -euo pipefail
mkdir -p boards/tiny
cat > boards/tiny/board.yaml <<'YAML'
name: tiny
version: 1
title: Two cells
summary: Twenty-four jobs on 16 GPUs, two seeds.
metric: jct_mean
better: lower
split: test
seeds: [5, 6]
placer: {name: buddy}
reference: {name: srtf}
scenarios:
- name: philly
  overrides: [scenario=testbed, cluster=arena-16, trace=philly-like, trace.jobs=24, trace.load=6.0, trace.max_duration_s=3600]
YAML
clustergym leaderboard --root boards freeze tiny
clustergym leaderboard --root boards add tiny las policy=las --author 'A. Author'
clustergym leaderboard --root boards add tiny fast-las policy=las policy.round_s=60
clustergym leaderboard --root boards check tiny
clustergym leaderboard --root boards score tiny | tee told
grep fast-las told
# Nothing else is said of it.
python - <<'PY'
import csv
from pathlib import Path

path = Path("boards/tiny/las/results.csv")
rows = list(csv.DictReader(path.read_text().splitlines()))
rows[0]["jct_mean"] = str(float(rows[0]["jct_mean"]) * 0.9)
with path.open("w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
PY
if clustergym leaderboard --root boards check tiny las --workers 1 > told 2>&1; then exit 1; fi
cat told
grep jct_mean told
grep -q 'tiny/las: 1 FLAGS' told
