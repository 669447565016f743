"""Write the reward of an evaluation: its combined_score, or 0 with the reason on stdout."""

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
evaluation = folder / "evaluation.json"
reason = "the evaluation did not come to its end"
numbers = {"combined_score": 0.0}
if evaluation.is_file():
    outcome = json.loads(evaluation.read_text(encoding="utf-8"))
    numbers, reason = outcome["metrics"], outcome["artifacts"].get("error", "")
reward = {"reward": numbers["combined_score"], **numbers}
(folder / "reward.json").write_text(json.dumps(reward, indent=1) + "\n", encoding="utf-8")
print(f"reward {reward['reward']:.4f}" + f": {reason}" * bool(reason))
