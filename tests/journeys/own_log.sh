# A log of three columns, and two questions: what if there were twice the nodes, and what if nodes failed?
set -euo pipefail
{
  echo submit_time,duration,gpus
  for at in $(seq 0 39); do echo "$((at * 240)),$((600 + (at * 977) % 5400)),$((1 << (at % 4)))"; done
} > jobs.csv
cat > mine.yaml <<'YAML'
name: mine
nodes: [{gpu_type: A100, count: 2, gpus_per_node: 8}]
YAML
cat > twice.yaml <<'YAML'
name: twice
nodes: [{gpu_type: A100, count: 4, gpus_per_node: 8}]
YAML
cat > study.yaml <<'YAML'
title: My jobs
scenarios:
  today: testbed cluster.path=mine.yaml
  twice the nodes: testbed cluster.path=twice.yaml
  nodes fail: testbed cluster.path=mine.yaml scenario.failures.mtbf_s=40000
policies: [ares]
# Models and batches, which a log does not name, are drawn by the seed.
settings: [trace=file, trace.path=jobs.csv]
seeds: [0, 1, 2]
metrics: {jct_mean: mean JCT, queue_mean: waiting, lost_gpu_hours: work undone}
reference_scenario: today
YAML
clustergym trace describe jobs.csv --cluster mine.yaml
clustergym study study.yaml --out answers --json answers.json
python - <<'PY'
import json

study = json.load(open("answers.json"))
columns = {column["label"]: column for column in study["policies"]["ares"]["columns"]}
ratio, (low, high) = (columns["twice the nodes"][key]["jct_mean"] for key in ("ratio", "ratio_interval"))
undone = columns["nodes fail"]["metrics"]["lost_gpu_hours"]["mean"]
print(f"twice the nodes: mean JCT {ratio:.2f} of today's [{low:.2f}, {high:.2f}]; nodes fail: {undone:.1f} GPU h undone")
assert 0 < low <= ratio <= high < 1.2
assert undone > 0
PY
test -s answers/study.md
test -s answers/tables/policy-ares.tex
