"""What an agent learns from scratch in an environment, seed by seed, with its curve.

    nice python benchmarks/tiers.py knobs-16 --seeds 5 --steps 6400 --json knobs-16.json
    nice python benchmarks/tiers.py priority-16 --learner by_job --steps 1650000 --env traces=200
    nice python benchmarks/tiers.py elastic-16 --learner by_job --steps 800000 --env jobs=50 --burst-share 0.5
    nice python benchmarks/tiers.py burst-16 --learner cma --steps 8000000
    nice python benchmarks/tiers.py knobs-16 --env actions=weights --start elastic --steps 6400

Trains on the split `train`, by PPO of Stable-Baselines3 with the settings of `SETTINGS`, by its SAC with its
own defaults (`--learner sac`), with credit by job (`--learner by_job`) and the settings of its agent, or by
CMA-ES over the weights of a linear score (`--learner cma`, `linear_scores.Evolution`); `--set` changes some,
and `num_envs`. Measures greedy play on the 40 traces of the split `dev` as it goes, and at the end on those
of `test`: mean JCT over that of heSRPT on the same traces, with an interval over traces and seeds
(percentiles of 10,000 resamplings of both). Random play stands beside it. With `--start CHECKPOINT` PPO
begins with the weights of an auction's checkpoint, and mean JCT over that of these weights on the same traces
is printed too.
"""

from __future__ import annotations

import argparse
import inspect
import json
import resource
import sys
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from clustergym.agents.auction_checkpoints import load
from clustergym.common.errors import InputError, exits_on_bad_input, require_known
from clustergym.common.figures import check_figure, draw_figure
from clustergym.common.writing import atomic_path
from clustergym.envs.episodes import trace_seed
from clustergym.envs.registration import register_envs
from clustergym.results.metrics.statistics import interquartile_mean
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.training.played_traces import Played, play_traces, simulate_policy
from clustergym.training.vector_envs import SchedulingVecEnv

TRACES = 40
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # A step is an episode: with the default `n_steps` of 2,048 there would be one update in 2,048 episodes.
    "knobs": {
        "num_envs": 32,
        "n_steps": 4,
        "batch_size": 64,
        "n_epochs": 6,
        "learning_rate": 2e-2,
        "gamma": 1.0,
        "policy_kwargs": {"net_arch": [], "log_std_init": -1.2},
    },
    "priority": {
        "num_envs": 32,
        "n_steps": 128,
        "batch_size": 512,
        "n_epochs": 6,
        "learning_rate": 7e-4,
        "gamma": 0.99,
        "policy_kwargs": {"log_std_init": -1.6},
    },
    # Those with which credit by job was measured here.
    "burst": (
        edits := {
            "num_envs": 128,
            "n_steps": 32,
            "batch_size": 512,
            "n_epochs": 4,
            "learning_rate": 7e-4,
            "gamma": 0.99,
        }
    ),
    "elastic": edits,
}
POINTS = 10
"""Measurements of a curve."""
Figures = npt.NDArray[np.float64]


def spent_s() -> float:
    """Return the processor time of this process so far, seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def envs_of(name: str, number: int, **options: Any) -> Any:
    """Make environments of an id on the compiled simulation, with flat observations."""
    register_envs()
    return gymnasium.make_vec(name, num_envs=number, observation="flat", autoreset_mode="Disabled", **options)


def find_tier(tier: str) -> str:
    """Return the id of an environment such as `knobs-16` that steps on the compiled simulation."""
    known = {row.short_name: row.id for row in ENVIRONMENTS if row.schedules}
    require_known(tier, known, "tier", "tier")
    return known[tier]


class Judge:
    """Measures agents on the traces of a split.

    Parameters
    ----------
    name : str
        The environment's id.
    split : {"dev", "test"}
    traces : int
        The first so many.
    **parameters
        Of the environment.
    """

    def __init__(self, name: str, split: str, traces: int = TRACES, **parameters: Any) -> None:
        self.envs = envs_of(name, traces, **parameters)
        self.seeds = [trace_seed(split, index) for index in range(traces)]

    @cached_property
    def hesrpt_s(self) -> Figures:
        """Mean JCT of heSRPT on each trace, seconds, shape (traces,)."""
        return self.simulate("hesrpt")

    def simulate(self, policy: str) -> Figures:
        """Return the mean JCT of a policy on each trace, deciding when the environment's agent does."""
        return simulate_policy(self.envs, self.seeds, policy)

    def draw(self, *_: Any) -> Any:
        """Return a random legal action for each trace."""
        return self.envs.sample_actions()

    def measure(self, decide: Callable[[Any, Any], Any]) -> Figures:
        """Return the mean JCT on each trace where `decide` gives the actions, seconds."""
        return self.play(decide).jct_s

    def compare(self, decide: Callable[[Any, Any], Any]) -> float:
        """Return the mean over traces of mean JCT, where `decide` gives the actions, over heSRPT's."""
        return float(np.mean(self.measure(decide) / self.hesrpt_s))

    def play(self, decide: Callable[[Any, Any], Any]) -> Played:
        """Play an episode on each trace where `decide`, (observations, masks) -> actions, says what to do."""
        return play_traces(self.envs, self.seeds, lambda seen, masks, _: decide(seen, masks))


Decide = Callable[[Any, Any], Any]
Curve = list[tuple[float, int, float]]
"""Processor time without measuring, steps, and what the agent comes to on the dev traces."""


class CurveRecorder:
    """Measures an agent on the dev traces now and then as it trains.

    Parameters
    ----------
    seed, steps : int
        Of the training.
    judge : callable
        Returns what the agent, as it plays by now, comes to on the dev traces.

    Attributes
    ----------
    curve : list of (float, int, float)
    """

    def __init__(self, seed: int, steps: int, judge: Callable[[], float]) -> None:
        self._seed, self._every, self._judge = seed, steps / POINTS, judge
        self._began, self._measuring_s = spent_s(), 0.0
        self.curve: Curve = []

    def measure(self, taken: int, last: bool = False) -> None:
        """Measure, at the end in any case, before it unless that was done a short time ago."""
        if self.curve and not last and taken - self.curve[-1][1] < self._every:
            return
        before = spent_s()
        used = before - self._began - self._measuring_s
        value = self._judge()
        self.curve.append((round(used, 1), taken, value))
        print(f"seed {self._seed}: {used:6.0f} CPU-s {taken:9,} steps {value:.3f}", file=sys.stderr)
        self._measuring_s += spent_s() - before


def check_settings(settings: Mapping[str, Any], learner: Callable[..., Any]) -> None:
    """Refuse settings that are no parameters of a learner."""
    known = list(inspect.signature(learner).parameters)
    for setting in settings:
        require_known(setting, known, "setting", "--set")


def learn(learner: Any, until: float, steps: int, recorder: CurveRecorder) -> None:
    """Let a learner take steps of its environments, of `steps` in all, and measure it as it goes."""
    while learner.num_timesteps < until:
        recorder.measure(learner.num_timesteps)
        learner.learn(learner.num_timesteps + 1, steps)


def train_by_job(name: str, given: argparse.Namespace, seed: int, judge: Judge) -> tuple[Decide, Curve]:
    """Train with credit by job, in bursts at first; return how it plays, and its curve."""
    from clustergym.training.job_credit import JobCreditLearner
    from clustergym.training.job_credit_agent import JobCreditAgent

    steps, settings = given.steps, dict(given.set)
    number = settings.pop("num_envs", 32)
    check_settings(settings, JobCreditAgent)
    stages: list[tuple[dict[str, Any], float]] = [({}, 1.0)]
    if given.burst_share:
        stages.insert(0, ({"jobs": 12, "loads": (4.0,)}, given.burst_share))
    made = [
        (envs_of(name, number, split="train", summaries=False, **{**given.env, **own}), share)
        for own, share in stages
    ]
    learner = JobCreditLearner(made[0][0], JobCreditAgent(**settings), seed)
    recorder = CurveRecorder(seed, steps, partial(judge.compare, learner.decide))
    for envs, share in made:
        if learner.envs is not envs:
            learner.begin(envs, seed)
        learn(learner, share * steps, steps, recorder)
        envs.close()
    recorder.measure(learner.num_timesteps, last=True)
    return learner.decide, recorder.curve


def train_on_traces(name: str, given: argparse.Namespace, seed: int, judge: Judge) -> tuple[Decide, Curve]:
    """Train by CMA-ES on traces of the split; return how it plays, and its curve."""
    from linear_scores import Evolution, LinearSearch

    settings = dict(given.set)
    number = settings.pop("num_envs", 64)
    check_settings(settings, Evolution)
    envs = envs_of(name, number, split="train", summaries=False, **given.env)
    agent = LinearSearch(envs, Evolution(**settings), seed)
    recorder = CurveRecorder(seed, given.steps, partial(judge.compare, agent.decide))
    learn(agent, given.steps, given.steps, recorder)
    recorder.measure(agent.num_timesteps, last=True)
    envs.close()
    return agent.decide, recorder.curve


def read_start(given: argparse.Namespace, envs: Any) -> Figures:
    """Read the weights that training begins with; refuse them where they are no action of stock PPO."""
    weights = load(given.start).weights
    if given.learner != "stock" or envs.single_action_space.shape != weights.shape:
        remedy = "give knobs-16, or another size, --learner stock and --env actions=weights"
        raise InputError("is for stock PPO whose actions are weights", field="--start", remedy=remedy)
    return weights


def begin_with(agent: Any, action: Figures) -> None:
    """Make PPO's most probable action the given one, whatever it observes."""
    from torch import as_tensor, no_grad

    layer = agent.policy.action_net
    with no_grad():
        layer.weight.zero_()
        layer.bias.copy_(as_tensor(action))


def train_stock(name: str, given: argparse.Namespace, seed: int, judge: Judge) -> tuple[Decide, Curve]:
    """Train PPO of Stable-Baselines3, of edits MaskablePPO, or SAC; return how it plays, and its curve."""
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.callbacks import BaseCallback

    family = name.removeprefix("ClusterGym/").partition("-")[0].lower()
    settings = {**({} if given.learner == "sac" else SETTINGS[family]), **given.set}
    number = settings.pop("num_envs", 1)
    envs = envs_of(name, number, split="train", summaries=False, **given.env)
    edits = isinstance(envs.single_action_space, gymnasium.spaces.Discrete)
    learner = MaskablePPO if edits else PPO
    if given.learner == "sac":
        if edits:
            raise InputError("chooses numbers, not edits", field="--learner sac", remedy="give stock")
        learner = SAC
    check_settings(settings, learner)
    agent = learner("MlpPolicy", SchedulingVecEnv(envs, 10.0), seed=seed, device="cpu", **settings)
    if given.start is not None:
        begin_with(agent, read_start(given, envs))

    def decide(seen: Any, masks: Any) -> Any:
        given = {"action_masks": masks} if edits else {}
        return agent.predict(seen, deterministic=True, **given)[0]

    recorder = CurveRecorder(seed, given.steps, partial(judge.compare, decide))

    class Measuring(BaseCallback):
        """Measures before a rollout."""

        def _on_rollout_start(self) -> None:
            recorder.measure(self.num_timesteps)

        def _on_step(self) -> bool:
            return True

    agent.learn(given.steps, Measuring())
    recorder.measure(agent.num_timesteps, last=True)
    envs.close()
    return decide, recorder.curve


LEARNERS = {**dict.fromkeys(("stock", "sac"), train_stock), "by_job": train_by_job, "cma": train_on_traces}


def interval(ratios: Figures, middle: bool = False) -> tuple[float, float, float]:
    """Return the mean of ratios, shape (seeds, traces), and its 95 % interval over seeds and traces.

    With `middle` the interquartile mean, of seeds and traces together (Agarwal et al., NeurIPS '21).
    """
    rng, (seeds, traces) = np.random.default_rng(0), ratios.shape
    drawn = np.stack(
        [
            ratios[np.ix_(rng.integers(seeds, size=seeds), rng.integers(traces, size=traces))].ravel()
            for _ in range(10_000)
        ]
    )
    means = interquartile_mean(drawn) if middle else drawn.mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    value = interquartile_mean(ratios.ravel()) if middle else ratios.mean()
    return float(value), float(low), float(high)


def train_seeds(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train each seed that the file does not have yet; return the figures of all."""
    about = {key: getattr(given, key) for key in ("learner", "steps", "set", "env", "burst_share", "start")}
    about["id"] = name
    figures: dict[str, Any] = {**about, "seeds": []}
    if given.json is not None and given.json.is_file():
        figures = json.loads(given.json.read_text(encoding="utf-8"))
        if any(figures.get(key) != value for key, value in about.items()):
            raise InputError("is of another training", file=given.json, remedy="give another --json")
    # `traces` is how many there are to train on, not to measure on.
    own = {key: value for key, value in given.env.items() if key != "traces"}
    dev, test = (Judge(name, split, **own) for split in ("dev", "test"))
    random = test.measure(test.draw)
    figures["random"] = float(np.mean(random / test.hesrpt_s))
    figures["hesrpt_jct_s"] = float(test.hesrpt_s.mean())
    if given.start is not None:
        weights = np.tile(read_start(given, test.envs), (TRACES, 1))
        started = test.measure(lambda *_: weights) / test.hesrpt_s
    for seed in range(len(figures["seeds"]), given.seeds):
        decide, curve = LEARNERS[given.learner](name, given, seed, dev)
        ratios = test.measure(decide) / test.hesrpt_s
        figures["seeds"].append({"seed": seed, "test": ratios.tolist(), "curve": curve})
        tested = np.array([row["test"] for row in figures["seeds"]])
        figures["over_hesrpt"] = interval(tested)
        figures["interquartile_mean"] = interval(tested, middle=True)
        if given.start is not None:
            figures["over_start"] = interval(tested / started)
        if given.json is not None:
            with atomic_path(given.json) as temporary:
                temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


def draw_curves(figures: Mapping[str, Any], figure: Any) -> None:
    """Draw the curve of each seed against processor time and against steps."""
    titles = ("processor time, s", "steps of the environments")
    for at, (axes, title) in enumerate(zip(figure.subplots(1, 2, sharey=True), titles, strict=True)):
        for row in figures["seeds"]:
            points = np.array(row["curve"])
            axes.plot(points[:, at], points[:, 2], label=f"seed {row['seed']}", linewidth=1.2)
        axes.axhline(1.0, color="0.4", linewidth=0.8, linestyle="--")
        axes.set(xlabel=title, yscale="log")
        axes.yaxis.set_major_formatter("{x:.2f}")
        axes.yaxis.set_minor_formatter("{x:.2f}")
    figure.axes[0].set_ylabel("mean JCT / heSRPT's")
    figure.axes[1].legend(frameon=False, fontsize=8)


def read_values(option: str, words: list[str]) -> dict[str, Any]:
    """Return what words such as `n_epochs=4` set."""
    for word in words:
        if "=" not in word:
            raise InputError(word, field=option, remedy="write NAME=VALUE, as n_epochs=4")
    return {name: json_value(value) for name, _, value in (word.partition("=") for word in words)}


def json_value(text: str) -> Any:
    """Return the value that JSON reads in a text, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", help="as knobs-16")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6_400, help="of the environments, each seed")
    parser.add_argument("--learner", choices=LEARNERS, default="stock")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the learner")
    parser.add_argument(
        "--env", nargs="+", default=[], metavar="NAME=VALUE", help="parameters of the environment"
    )
    parser.add_argument(
        "--burst-share", type=float, default=0.0, help="share of the steps in bursts, with credit by job"
    )
    parser.add_argument("--start", metavar="CHECKPOINT", help="weights of an auction that PPO begins with")
    parser.add_argument("--json", type=Path, help="seeds that it has already are not trained again")
    parser.add_argument("--svg", type=Path, help="a picture of the curves")
    given = parser.parse_args(argv)
    given.set, given.env = read_values("--set", given.set), read_values("--env", given.env)
    check_figure(given.svg, "--svg")
    figures = train_seeds(find_tier(given.tier), given)
    mean, low, high = figures["over_hesrpt"]
    if given.start is not None:
        print("over {}: {:.3f} [{:.3f}, {:.3f}]".format(given.start, *figures["over_start"]))
    each = ", ".join(f"{np.mean(row['test']):.3f}" for row in figures["seeds"])
    spent = ", ".join(f"{row['curve'][-1][0]:.0f}" for row in figures["seeds"])
    print(f"{figures['id']}: {mean:.3f} [{low:.3f}, {high:.3f}] of heSRPT, {len(figures['seeds'])} seeds")
    print("interquartile mean: {:.3f} [{:.3f}, {:.3f}]".format(*figures["interquartile_mean"]))
    print(f"each seed: {each}; CPU-s: {spent}")
    taken, used = np.sum([row["curve"][-1][1::-1] for row in figures["seeds"]], axis=0)
    print(f"steps a CPU-second: {taken / max(used, 0.1):,.0f}")
    print(f"random play: {figures['random']:.3f}")
    if given.json is not None:
        print(f"wrote {given.json}")
    if given.svg is not None:
        draw_figure(given.svg, (7.0, 2.8), partial(draw_curves, figures), "--svg")
        print(f"wrote {given.svg}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
