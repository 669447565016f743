"""`agent=job_credit`: PPO with credit by job, from scratch; short bursts may come before long episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import Factor, Fraction, NonNegativeFloat, PositiveFloat, PositiveInt
from clustergym.envs.observations import JobRows
from clustergym.envs.vector.costs import check_terms
from clustergym.training.network_agent import NetworkAgent
from clustergym.training.split_env import SplitEnv, has_fixed_trace, make_compiled_envs


@dataclass
class JobCreditAgent(NetworkAgent):
    """PPO (Schulman et al., 2017) whose critic has a value for each job in the observation's rows.

    Parameters
    ----------
    traces : int or None
        Traces of the training split that episodes are drawn from; None: any number.
    hidden : int
        Width of the layers.
    n_envs, n_steps : int
        Environments that are stepped together, and steps of each between two updates.
    n_epochs, clip_range, ent_coef, value_weight
        Of PPO.
    critic, discount_s, trace_decay, trace_decay_edit, log_std
        See `clustergym.training.job_credit.JobCredit`.
    burst_share : float
        Share of the steps that come first, in bursts: episodes of `burst_jobs` jobs at `burst_load`.
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
    critic: Literal["job", "episode"] = "job"
    discount_s: PositiveFloat | None = 6 * 3600.0
    trace_decay: Fraction = 0.95
    trace_decay_edit: Fraction = 0.9
    log_std: float = -1.6
    burst_share: Fraction = 0.0
    burst_jobs: PositiveInt = 12
    burst_load: PositiveFloat = 4.0

    name = "job_credit"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.hidden) == 2, "agent.hidden", self.hidden, "give two widths, as [64, 64]")

    @contextmanager
    def envs(self) -> Iterator[list[Any]]:
        """Make the training environments: the usual ones and, if configured, some with bursts of jobs."""
        given = {**self.env, "split": self.split, "traces": self.traces}
        if has_fixed_trace(self.env):
            require(not self.burst_share, "agent.burst_share", self.burst_share, "give 0: the trace is fixed")
        made = [self._make(given)]
        if self.burst_share:
            made.insert(0, self._make({**given, "jobs": self.burst_jobs, "loads": (self.burst_load,)}))
        try:
            yield made
        finally:
            for envs in made:
                envs.close()

    def _make(self, mapping: Mapping[str, Any]) -> Any:
        made = make_compiled_envs(mapping, self.n_envs, autoreset_mode="Disabled")
        if made is None:
            message = f"{mapping['id']} with these parameters is stepped by no compiled simulation"
            remedy = "choose env=priority-16, burst-16 or elastic-16"
            raise InputError(message, field="env", remedy=remedy)
        return made

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

    def model(self, envs: list[Any], seed: int) -> Any:
        """Make the object that trains the network in the environments."""
        from clustergym.training.job_credit import JobCredit, JobCreditLearner

        same = {of.name: getattr(self, of.name) for of in fields(JobCredit) if hasattr(self, of.name)}
        settings = JobCredit(**same)
        model = JobCreditLearner(envs[-1], settings, seed)
        self._envs = envs
        return model

    def begin(self, model: Any, seed: int) -> None:
        """Seed the random streams, and begin new episodes; in the early training, jobs arrive in bursts."""
        short = model.num_timesteps < self.burst_share * self.steps
        model.begin(self._envs[0 if short else -1], seed)

    def learn(self, model: Any) -> dict[str, float]:
        """Train for `validate_every` steps; return the updates' mean figures, by name."""
        figures: dict[str, float] = model.learn(model.num_timesteps + self.validate_every, self.steps)
        return figures
