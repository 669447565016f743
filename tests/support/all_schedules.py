"""Every schedule of a small scenario of one GPU type."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product

from clustergym.results.measured_run import measure_run
from clustergym.scenario.policy import Decision, InformationClass, Policy, View
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate
from clustergym.sim.engine import StalledError


def metric_of(scenario: Scenario, policy: Policy, metric: str) -> float:
    """Return a metric of a policy, with jobs never moved for room."""
    run = simulate(scenario, policy, make_placer({"name": "buddy", "defragment_s": None}))
    return float(measure_run(run.simulation).metrics[metric] or 0.0)


class Chosen(Policy):
    """Takes the option of a given number at each decision point, then the first."""

    name = "chosen"
    information_class = InformationClass.NONE

    def __init__(self, numbers: list[int]) -> None:
        super().__init__()
        self.numbers, self.options = numbers, list[int]()

    def schedule(self, view: View) -> Decision:
        room = int(view.available.sum())
        options = [gpus for gpus in product((2, 1, 0), repeat=len(view)) if sum(gpus) <= room]
        at = len(self.options)
        self.options.append(len(options))
        gpus = options[self.numbers[at] if at < len(self.numbers) else 0]
        return Decision.of((int(job), 0, count) for job, count in zip(view.job, gpus, strict=True) if count)


def all_schedules(scenario: Scenario, metric: str) -> Iterator[float]:
    """Yield a metric of every choice of up to 2 GPUs at every decision point; those that stall have none."""
    numbers: list[int] = []
    while True:
        policy = Chosen(numbers)
        with suppress(StalledError):
            yield metric_of(scenario, policy, metric)
        taken = numbers + [0] * (len(policy.options) - len(numbers))
        while taken and taken[-1] + 1 == policy.options[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        taken[-1] += 1
        numbers = taken
