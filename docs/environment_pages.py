"""Pages of the environments, from their docstrings, their parameters and their table."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from dataclasses import asdict
from itertools import pairwise
from typing import Any, get_type_hints

import numpy as np
from gifs import gif_of

from clustergym.common.parameters import describe_type

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
VARIANTS = {
    "Elastic-homogeneous": "`Elastic` on GPUs of one type: models are data-parallel (`rule: ares`) "
    "and relaunches cost what Ares measured (`costs: ares-profiled-free`). All else is as there.",
    "Burst": "`Elastic` in a short episode: 12 or 20 jobs come within minutes (`loads: [4.0]`); about 300 "
    "edits later all have left. It is where to begin with an agent that edits. All else is as there.",
}
"""Families that are another one with other parameters."""
FRAMES, FRAME_MS = 20, 300
STEPS_A_FRAME = {
    "Auction": 2,
    "Priority": 2,
    "Knobs": 2,
    "Burst": 2,
    "Placement": 2,
    "Sharing": 16,
    "Rack": 4,
    "Capacity": 3,
}
OF_PICTURE = {"Knobs": {"hold": 2}}
"""Parameters of the environment that is drawn: an episode of one step has no picture but its first."""
"""Of legal random steps; of the others ten, as ten edits make about one decision."""
CURVE = "![On dev windows or traces, as {name} trains](../learned-agents/{name}.svg)\n\n"
EVOLVED = CURVE + "`{name}`, trained by evolution ([the objective](../learned-agents/training.md)). "
LEFT = "What look-ahead and hindsight leave: [not measured](README.md#what-is-left-in-them).\n\n"
LESSON = "A lesson, not a benchmark: its threshold is a heuristic's. " + LEFT
REACHED = {
    "Elastic": LESSON + CURVE.format(name="elastic-16") + "Masked PPO on `Elastic-16`. "
    "From scratch, [credit by job](../learned-agents/training.md#credit-by-job) on episodes of 50 jobs, "
    "five seeds, by `python benchmarks/tiers.py elastic-16 --learner by_job --steps 3000000 --env jobs=50 "
    "--seeds 5`: mean JCT on the 40 test traces over heSRPT's 0.941 [0.921, 0.962], in 333 to 433 s "
    "of processor time a seed; random play has 1.691. On `Elastic-64` three seeds have 0.964 [0.928, 1.003], "
    "in 1,461 to 1,721 s. MaskablePPO of sb3-contrib hardly learns on `Elastic-16`: 1.485 [1.405, 1.560] "
    "over five seeds, in 227 to 248 s.",
    "Elastic-homogeneous": EVOLVED.format(name="elastic-384") + "For 384 GPUs of one type.",
    "Fair": EVOLVED.format(name="fair")
    + "The board [fair](../../leaderboards/fair/README.md) has its score. "
    "From scratch: [credit by job](../learned-agents/training.md#credit-by-job).",
    "Deadline": EVOLVED.format(name="deadline")
    + "The board [deadline](../../leaderboards/deadline/README.md) has its score. From scratch: "
    "[credit by job](../learned-agents/training.md#credit-by-job).",
    "Auction": EVOLVED.format(name="none") + "[How an auction is trained](../learned-agents/training.md).",
    "Burst": "Near saturation. "
    + LESSON
    + CURVE.format(name="burst-16")
    + "[Credit by job](../learned-agents/training.md#credit-by-job) from scratch on `Burst-16`, five seeds, "
    "by `python benchmarks/tiers.py burst-16 --learner by_job --steps 1500000 --set learning_rate=7e-4 "
    "num_envs=128 n_steps=32 n_epochs=4 value_weight=0.5`: mean JCT on the 40 test traces over heSRPT's "
    "0.999 [0.967, 1.038], in 118 to 153 s of processor time a seed; "
    "random play has 1.503. CMA-ES over a linear score has 1.040 "
    "[1.012, 1.067] over five seeds, in 46 to 61 s, and MaskablePPO of sb3-contrib 1.171 "
    "[1.124, 1.224] over five, in 354 to 453 s. On `Burst-64` three seeds with credit by job have 1.004 "
    "[0.966, 1.045], in 291 to 384 s, where random play has 1.803. What "
    "heuristics and the best known weights come to: [tiers](README.md#tiers).\n\n"
    + CURVE.format(name="burst-64").rstrip(),
    "Priority": LEFT
    + CURVE.format(name="priority-16")
    + "[Credit by job](../learned-agents/training.md#credit-by-job) from scratch on `Priority-16`, by "
    "`python benchmarks/tiers.py priority-16 --learner by_job --steps 1650000 --env traces=200`: mean JCT on "
    "the 40 test traces over heSRPT's 0.936 [0.922, 0.951] over five seeds, in 164 to 228 s of processor "
    "time a seed; random play has 1.824. On `Priority-64` three seeds have 0.956 [0.942, 0.971], and on "
    "`Priority-1280` 0.907 [0.895, 0.920]. "
    "Stock learners: PPO of Stable-Baselines3 "
    "with `baseline=hesrpt` and `gamma=0.98` has 1.315 on `Priority-16` after a million steps (five "
    "seeds), and SAC does not learn there. "
    "What heuristics and the best known weights come to: [tiers](README.md#tiers).\n\n"
    + CURVE.format(name="priority-1280").rstrip(),
    "Knobs": LEFT
    + CURVE.format(name="knobs-64")
    + "PPO of Stable-Baselines3 on `Knobs-64`, one process, with 32 environments, `n_steps=4`, "
    "`batch_size=64`, `n_epochs=6`, `learning_rate=2e-2`, `gamma=1`, no hidden layers and "
    "`log_std_init=-1.2` (`SETTINGS` of `benchmarks/tiers.py`). The default `n_steps` of 2,048 has to "
    "change: a step is an episode, so that 6,400 of them in 32 environments would not be one update. "
    "Mean JCT on the 40 test traces over heSRPT's, five seeds of 6,400 episodes, by `python "
    "benchmarks/tiers.py knobs-64`: 0.924 [0.913, 0.934], in 16 to 23 s of processor time a seed. On "
    "`Knobs-16` it is 0.908 [0.895, 0.920], in 13 to 19 s, and on `Knobs-1280` 0.903 [0.886, 0.926], in 24 "
    "to 30 s. The known auction, where training begins, has 1.365, 1.096 and 1.981, random play 4.06, 2.72 "
    "and 3.79. SAC of Stable-Baselines3 with its own defaults and one environment has 0.974 [0.960, 0.988] "
    "on `Knobs-16` over five seeds of 4,000 episodes, in 67 to 91 s, by `python benchmarks/tiers.py knobs-16 "
    "--learner sac --steps 4000`.\n\n"
    + CURVE.format(name="knobs-16")
    + CURVE.format(name="knobs-1280").rstrip(),
    "Tenants": "From scratch, for mean JCT alone: [credit by "
    "job](../learned-agents/training.md#credit-by-job). Policies under quotas, the learned auction among "
    "them: [tenants](../tenants.md).",
    "Placement": "No agent is trained in it. Placement algorithms, and how far they are from the optimum: "
    "[Arnold](../reproduction/arnold.md).",
    "Sharing": EVOLVED.format(name="sharing")
    + "It allocates more than FGD, and rejects more requests for several GPUs: "
    "the board [sharing](../../leaderboards/sharing/README.md).",
    "Capacity": "Rules, learned agents, look-ahead and hindsight, and what each piece of state is worth: "
    "[Capacity](../learned-agents/capacity.md).",
    "Rack": "Hours that gangs wait, a mean weighted by GPUs, over the episodes of seeds 0 to 199, by `python "
    "benchmarks/rack_table.py --episodes 200 --hindsight 0 --evolve 3`, with 95 % bootstrap intervals over "
    "episodes:\n\n"
    "| rule | hours | over random play | moves |\n"
    "| --- | ---: | ---: | ---: |\n"
    "| random play, of legal actions | 2.637 [2.480, 2.796] | 1.00 | 117.5 |\n"
    "| worst fit | 3.711 [3.524, 3.898] | 1.41 | 0 |\n"
    "| first fit | 2.886 [2.723, 3.056] | 1.09 | 0 |\n"
    "| best fit: the rack with the fewest free trays | 2.416 [2.264, 2.569] | 0.92 | 0 |\n"
    "| best fit, and the fewest moves that make room | 2.265 [2.112, 2.416] | 0.86 | 5.9 |\n"
    "| scores of actions by CMA-ES, seed 0 | 2.186 [2.038, 2.337] | 0.83 | 98.9 |\n"
    "| scores of actions by CMA-ES, seed 1 | 2.196 [2.046, 2.349] | 0.83 | 104.0 |\n"
    "| scores of actions by CMA-ES, seed 2; best known | 2.180 [2.029, 2.336] | 0.83 | 100.6 |\n\n"
    "The learned agent (`benchmarks/rack_agent.py`) gives each action a linear score of 23 weights, "
    "computed from the observation alone. CMA-ES starts from weights that play best fit with moves, and "
    "plays 7,200 episodes in 500 s of processor time. Gangs wait 0.966 [0.946, 0.985] times as long as "
    "under best fit with moves (mean of the three seeds; paired bootstrap over the 200 episodes). "
    "MaskablePPO of sb3-contrib with the settings in `benchmarks/rack_table.py` does not get that far in "
    "100,000 steps, which take 240 s: 2.477 [2.074, 2.891] on the first 40 episodes, where random play "
    "has 2.583 and best fit with moves 2.257. Hindsight, which tries each action to the end of the "
    "episode, has 1.851 on the first two episodes, where best fit with moves has 2.334.\n\n"
    "Where gangs tell how long they will run: [Rack-told](rack-told.md).",
}
"""What agents or algorithms come to in a family, with the learning curve where one is committed."""
USES = """\
[Train an agent](../train-an-agent.md) on it, or change it: parameters are given to
`gymnasium.make(id, NAME=VALUE)`, as `env.NAME=VALUE` to `clustergym train`, or in a file of your own
([an environment of your own](../own-environment.md))."""


def environment_pages() -> dict[str, str | bytes]:
    """Return the page and the picture of each family, and the index of pages, by path."""
    found: dict[str, str | bytes] = {}
    for family, rows in families().items():
        name = family.lower()
        found[f"environments/{name}.md"] = _page(family, rows)
        found[f"environments/{name}.gif"] = _picture(family, rows[0].id)
    return found


def families() -> dict[str, list[Any]]:
    """Return the rows of the table of environments by family; the unnumbered one is the first."""
    from clustergym.scenario.environments import ENVIRONMENTS

    found: dict[str, list[Any]] = {}
    for row in ENVIRONMENTS:
        name = row.id.removeprefix("ClusterGym/").rpartition("-v")[0]
        family = re.sub(r"-(\d+|small|large|told)$", "", name)
        found.setdefault(family, []).append(row)
    return found


def sections(cls: type) -> dict[str, str]:
    """Return a docstring's parts by their headings; what stands before the first is `""`."""
    parts = SECTION.split(inspect.cleandoc(cls.__doc__ or ""))
    return {"": parts[0].strip()} | {
        name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def _page(family: str, rows: list[Any]) -> str:
    from clustergym.envs.families import ElasticEnv

    cls = load_class(rows[0].entry_point)
    own, base = sections(cls), sections(ElasticEnv)
    parts = [f"# {family}", own.pop("")]
    if family in VARIANTS:
        parts.append(VARIANTS[family])
    parts += [
        f'```python\nenv = gymnasium.make("{rows[0].id}")\n```',
        f"![Legal random actions in {family}]({family.lower()}.gif)",
    ]
    for name in list(base)[1:-1]:
        parts += [f"## {name}", _linked(_without_ids(own.get(name, base[name])))]
        if name == "Description":
            parts.append(_table(rows))
    parts += ["## What is reached in it", REACHED[family], *_arguments(family, rows[0])]
    return "\n\n".join(parts) + "\n"


def load_class(entry_point: str) -> type:
    """Return the class of an entry point."""
    module, _, name = entry_point.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


def _made(name: str, **parameters: Any) -> Any:
    import gymnasium

    return gymnasium.make(name, **parameters).unwrapped


def _without_ids(text: str) -> str:
    """Leave out the docstring's table of ids: the page has one with more columns."""
    return "\n\n".join(block for block in text.split("\n\n") if not block.startswith("| id |"))


def _linked(text: str) -> str:
    return text.replace("`ElasticEnv`", "[Elastic](elastic.md)")


def _table(rows: list[Any]) -> str:
    from gymnasium.spaces import flatdim

    lines = ["| id | `env=` | cluster | GPUs | types | jobs | actions | numbers observed |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        env = _made(row.id)
        if hasattr(env, "racks"):
            sizes = (gpus := 4 * env.racks * env.parameters.trays), 1, env.parameters.jobs
            figures = (*sizes, flatdim(env.action_space), flatdim(env.observation_space))
            lines.append(_row(row, f"{env.racks} racks of {gpus // env.racks}", figures))
            continue
        if hasattr(env.parameters, "reach"):
            sizes = env.parameters.gpus, 1, 0
            figures = (*sizes, flatdim(env.action_space), flatdim(env.observation_space))
            lines.append(_row(row, "half its own, the rest rented", figures))
            continue
        if hasattr(env, "source"):
            lines.append(_of_divisible_nodes(row, env))
            continue
        cluster = _cluster_of(env)
        figures = (
            int(cluster.capacity.sum()),
            len(cluster.gpu_types),
            getattr(env.parameters, "jobs", 1),
            flatdim(env.action_space),
            flatdim(env.observation_space),
        )
        lines.append(_row(row, cluster.name, figures))
    return "\n".join(lines)


def _row(row: Any, cluster: str, figures: tuple[int, ...]) -> str:
    shown = " | ".join(f"{figure:,}" for figure in figures)
    return f"| `{row.id}` | `{row.short_name}` | {cluster} | {shown} |"


def _of_divisible_nodes(row: Any, env: Any) -> str:
    from gymnasium.spaces import flatdim

    gpus, models = int(env.source.nodes.devices.sum()), len(set(env.source.nodes.model.tolist()))
    env.reset(seed=0)
    sizes = (gpus, models, env.state.number, flatdim(env.action_space), flatdim(env.observation_space))
    return _row(row, f"like openb, {env.nodes:,} nodes", sizes)


def _cluster_of(env: Any) -> Any:
    from clustergym.cluster.cluster_files import load_cluster

    parameters = env.parameters
    if hasattr(env, "problem"):
        return load_cluster(parameters.cluster or f"arnold-{parameters.setting}")
    return load_cluster(parameters.cluster)


def _arguments(family: str, row: Any) -> list[str]:
    """Return the sections of the arguments, and of the YAML that makes the family's environment."""
    chosen = _made(row.id).parameters
    values = asdict(chosen)
    parts = ["## Arguments", "`render_mode` is `ansi`, `rgb_array` or none. All others are parameters."]
    if family in ("Elastic", "Placement", "Sharing", "Rack", "Capacity"):
        lines = ["| parameter | accepts | default | meaning |", "| --- | --- | --- | --- |"]
        for name, (kind, text) in described(type(chosen)).items():
            default = json.dumps(values[name], ensure_ascii=False)
            lines.append(f"| `{name}` | {kind} | `{default}` | {text} |")
        parts.append("\n".join(lines))
    else:
        usual = asdict(type(chosen)())
        values = {name: value for name, value in values.items() if value != usual[name]}
        parts.append("They are those of [Elastic](elastic.md#arguments); the defaults below differ.")
    written = {"id": row.id, **values}.items()
    text = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in written)
    given = f"`env={row.short_name}` of `clustergym train`, or a file of one's own:"
    return [*parts, "## Configuration", f"{given}\n\n```yaml\n{text}\n```", USES]


def described(parameters: type) -> dict[str, tuple[str, str]]:
    """Return what each field of a dataclass accepts and its text (which stands below it), by name."""
    (tree,) = ast.parse(inspect.getsource(parameters)).body
    assert isinstance(tree, ast.ClassDef)
    hints, found = get_type_hints(parameters, include_extras=True), {}
    for at, below in pairwise(tree.body):
        if isinstance(at, ast.AnnAssign) and isinstance(below, ast.Expr):
            name = ast.unparse(at.target)
            found[name] = (describe_type(hints[name], name), " ".join(ast.literal_eval(below.value).split()))
    return found


def _picture(family: str, name: str) -> bytes:
    """Return a GIF of random legal steps in the environment, the same at every build."""
    from clustergym.envs.driver import random_action

    env = _made(name, render_mode="rgb_array", **OF_PICTURE.get(family, {}))
    _, info = env.reset(seed=0)
    rng, frames = np.random.default_rng(0), []
    for step in range(FRAMES * STEPS_A_FRAME.get(family, 10)):
        if step % STEPS_A_FRAME.get(family, 10) == 0:
            frames.append(env.render())
        _, _, terminated, truncated, info = env.step(random_action(env, info, rng))
        if terminated or truncated:
            raise RuntimeError(f"{name} ended before its picture was taken")
    return gif_of(frames, -1, duration=FRAME_MS)
