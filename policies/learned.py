"""Learned: a policy that decides by the weights of a trained agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import require
from clustergym.common.parameter_types import NonNegativeInt, Period
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.trace.trace import Trace

from .shared.marginal import times_or_guess


@dataclass
class Learned(Policy):
    """A policy in which a trained agent decides: a network, or an auction of GPUs by learned scores.

    A network (`agent=ppo`, `maskable_ppo`, `job_credit`) decides by its greedy actions, at
    the decision points of the environment it was trained in. Weights of `agent=auction_es` hold an auction.

    At a decision point all GPUs are put up for auction: again and again the move of greatest learned score is
    made, a job's start with its least count on a type or the doubling of what it has, until no start has
    room and no doubling scores above 0. An enlargement of a running job that does not repay its restart
    is reverted. `clustergym.agents.auction_features` defines what the score is made of. An agent of class
    `none`, or trained with `agent.measures`, believes iteration times by what it has seen of jobs that ran
    (`clustergym.agents.beliefs`).

    Parameters
    ----------
    checkpoint : str
        A `.safetensors` file with its YAML beside it, or the name of a checkpoint of the package.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy; None: at every event,
        for a network as in its training.
    rollout : int
        Draws of arrivals under which an auction's decision and others are played out, by known times and to
        the end of the last job; that of the least mean JCT is made. 0: none. Arrivals are drawn from what
        the policy has seen (`clustergym.agents.lookahead`).
    """

    name: ClassVar[str] = "learned"
    checkpoint: str = "elastic"
    round_s: Period | None = None
    rollout: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        from clustergym.agents.checkpoints import is_network

        self._observed: Any = None
        self._player = self._network() if is_network(self.checkpoint) else None
        if self._player is None:
            from clustergym.agents.auction_checkpoints import load
            from clustergym.agents.beliefs import split

            self._loaded: Any = load(self.checkpoint)
            self._scores, self._believed = split(self._loaded.weights)
            told = self.information_class != InformationClass.NONE
            why = "measures jobs beside the times that it is told" if told else "is told no times to play out"
            remedy = f"give 0, as {self.checkpoint} {why}"
            require(not (self.rollout and len(self._believed)), "policy.rollout", self.rollout, remedy)
        else:
            remedy = "give 0, as only auctions are played out"
            require(self.rollout == 0, "policy.rollout", self.rollout, remedy)
            # A network decides as often as in its training unless told otherwise.
            self.round_s = self._player.round_s if self.round_s is None else self.round_s

    def _network(self) -> Any:
        from clustergym.training.network_checkpoints import NetworkPlayer, load

        self._loaded = load(self.checkpoint)
        return NetworkPlayer(self._loaded)

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an `InputError` for a cluster for which the agent's network was not trained."""
        if self._player is not None:
            self._player.check(trace, setting)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Prepare the agent for a new run."""
        self._observed = None
        if self._player is not None:
            self._player.reset(setting, rng)
        elif self.rollout:
            from clustergym.agents.lookahead import LookAhead

            self._ahead = LookAhead(self.rollout, rng)

    @property
    def information_class(self) -> InformationClass:
        """What the policy knows of iteration times: as much as the agent did in training."""
        information: InformationClass = self._loaded.information_class
        return information

    @property
    def auction_weights(self) -> Floats | None:
        """The weights of the scores if the agent only auctions GPUs by them; None otherwise."""
        plain = self._player is None and not self.rollout and not len(self._believed)
        return self._scores if plain else None

    def fingerprint(self) -> str:
        """Return the digest of the agent's weights."""
        return str(self._loaded.sha256)

    def schedule(self, view: View) -> Decision:
        """Let the agent's network, or its auction of GPUs by scores, decide which jobs hold which GPUs."""
        if not len(view):
            return Decision.keep(view)
        if self._player is not None:
            decided: Decision = self._player.schedule(view)
            return decided
        from clustergym.agents.auction import decide, make_bids

        counts, available = view.setting.counts.astype(np.int64), view.available.astype(np.int64)
        if len(self._believed):
            gpu_type, level = self._decide_by_beliefs(view, available, counts)
        elif self.rollout:
            bids = make_bids(view, times_or_guess(view))
            gpu_type, level = self._ahead.decide(self._scores, view, available, counts, bids)
        else:
            gpu_type, level = decide(self._scores, available, counts, make_bids(view, times_or_guess(view)))
        runs = np.flatnonzero(gpu_type >= 0)
        return Decision(view.job[runs], gpu_type[runs], counts[level[runs]])

    def _decide_by_beliefs(self, view: View, available: Ints, counts: Ints) -> tuple[Ints, Ints]:
        from clustergym.agents import beliefs
        from clustergym.agents.auction import make_bids

        jobs = int(view.job.max()) + 1
        if self._observed is None:
            self._observed = beliefs.nothing_observed(jobs, *view.feasible.shape[1:])
        self._observed = beliefs.with_room(self._observed, jobs)
        # Copies, which can be written as the arrays of compiled episodes can: both share their machine code.
        shown = beliefs.JobsView(
            view.job.copy(),
            view.now_s,
            view.iterations.copy(),
            view.requested_gpus.astype(np.int64),
            view.feasible.copy(),
        )
        told = self.information_class != InformationClass.NONE
        bids = make_bids(view, view.iteration_time_s() if told else np.full(view.feasible.shape, np.inf))
        gpu_type, level = beliefs.decide(
            self._scores, self._believed, self._observed, available, counts, shown, bids
        )
        return gpu_type, level
