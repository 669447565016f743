"""`agent=job_credit`: PPO with credit by job, from scratch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import MinLen

from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import Factor, Fraction, NonNegativeFloat, PositiveFloat, PositiveInt
from clustergym.envs.observations import JobRows
from clustergym.envs.vector.costs import check_terms
from clustergym.training.network_agent import NetworkAgent
from clustergym.training.split_env import SplitEnv, make_compiled_envs


@dataclass
class JobCreditAgent(NetworkAgent):
    """PPO (Schulman et al., 2017) whose critic has a value for each job in the observation's rows.

    Parameters
    ----------
    traces : int or None
        Traces of the training split that episodes are drawn from; None: any number.
    hidden : tuple of int
        Widths of the two layers.
    n_envs, n_steps : int
        Environments that are stepped together, and steps of each between two updates.
    n_epochs, batch_size : int
        Passes over the steps of an update, and steps in a gradient.
    clip_range, value_weight, ent_coef : float
        Of PPO: range of ratios, weights of the critic's loss and of the entropy.
    discount_s : float or None
        Time in which what is to come loses all but 1/e of its weight, seconds; None: it keeps it.
    trace_decay : float
        Lambda of the advantages, for each decision.
    trace_decay_edit : float
        The same for each edit at which the clock stands still.
    log_std : float
        Logarithm of the standard deviation of priorities at the start.
    device : str
        Where PyTorch computes: `cpu`, or a GPU, as `cuda`. On a GPU PyTorch adds up in any order, so that two
        trainings with the same seed differ.
    """

    env: Mapping[str, Any] = field(default_factory=lambda: {"id": "ClusterGym/Priority-16-v0"})
    steps: PositiveInt = 500_000
    validate_every: PositiveInt = 50_000
    validation: PositiveInt = 12
    traces: PositiveInt | None = None  # type: ignore[assignment]
    learning_rate: Factor = 5e-4
    batch_size: PositiveInt = 512
    hidden: Annotated[tuple[PositiveInt, ...], MinLen(1)] = (64, 64)
    n_envs: PositiveInt = 32
    n_steps: PositiveInt = 128
    n_epochs: PositiveInt = 2
    clip_range: PositiveFloat = 0.2
    ent_coef: NonNegativeFloat = 0.0
    value_weight: NonNegativeFloat = 2.0
    discount_s: PositiveFloat | None = 6 * 3600.0
    trace_decay: Fraction = 0.95
    trace_decay_edit: Fraction = 0.9
    log_std: float = -1.6
    device: str = "cpu"

    name = "job_credit"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.hidden) == 2, "agent.hidden", self.hidden, "give two widths, as [64, 64]")

    @contextmanager
    def envs(self) -> Iterator[Any]:
        """Make the training environments."""
        given = {**self.env, "split": self.split, "traces": self.traces}
        made = make_compiled_envs(given, self.n_envs, autoreset_mode="Disabled")
        if made is None:
            message = f"{self.env['id']} with these parameters is stepped by no compiled simulation"
            remedy = "choose env=priority-16, burst-16 or elastic-16"
            raise InputError(message, field="env", remedy=remedy)
        try:
            yield made
        finally:
            made.close()

    def check_env(self, env: SplitEnv) -> None:
        """Raise an InputError if the environment has a baseline, no rows of jobs, or rewards not by job."""
        core: Any = env.unwrapped
        if not isinstance(getattr(core, "features", None), JobRows):
            raise InputError(
                "has no rows of jobs", field="env", remedy="choose env=priority-16, burst-16 or elastic-16"
            )
        check_terms(core.parameters.reward)
        if core.parameters.baseline is not None:
            remedy = "leave it out: a job is compared with what its value says"
            raise InputError("is for critics of the whole episode", field="env.baseline", remedy=remedy)

    def model(self, envs: Any, seed: int) -> Any:
        """Make the object that trains the network in the environments."""
        from clustergym.training.job_credit import JobCreditLearner

        return JobCreditLearner(envs, self, seed)

    def begin(self, model: Any, seed: int) -> None:
        """Seed the random streams, and begin new episodes."""
        model.begin(model.envs, seed)

    def learn(self, model: Any) -> dict[str, float]:
        """Train for `validate_every` steps; return the updates' mean figures, by name."""
        figures: dict[str, float] = model.learn(model.num_timesteps + self.validate_every, self.steps)
        return figures
