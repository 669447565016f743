"""Division of GPUs among queues by quota, then priority, then weight with history (KAI-Scheduler).

Source: NVIDIA KAI-Scheduler, docs/fairness and docs/time-based-fairshare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clustergym.scenario.tenants.rounding import Offers

UNLIMITED = math.inf
EPSILON = 1e-9
"""GPUs below which a difference is rounding of floating point."""


@dataclass(frozen=True)
class Claim:
    """What a queue may and would have of its parent's GPUs of one type.

    Attributes
    ----------
    request : float
        GPUs that its jobs hold or wait for.
    quota : float
        GPUs it deserves before anybody has a surplus; infinite: all of the parent's.
    limit : float
        Most GPUs it may have.
    weight : float
        Its part of the surplus, against queues of equal priority; 0: none.
    priority : int
        Queues of a higher one have all they want of the surplus first.
    usage : float
        Part of the parent's GPU time that it has had of late, from 0 to 1 (`History.usage`).
    """

    request: float
    quota: float = 0.0
    limit: float = UNLIMITED
    weight: float = 1.0
    priority: int = 100
    usage: float = 0.0

    @property
    def wanted(self) -> float:
        """GPUs that it would have if nobody else wanted any."""
        return min(self.request, self.limit)


def fair_shares(total: float, claims: Sequence[Claim], history_weight: float = 1.0) -> list[float]:
    """Return each queue's fair share of a parent's GPUs of one type.

    Each has its quota, as far as it wants it; quotas may together exceed the parent's GPUs. The rest goes,
    priority by priority, to those that want more: by weight, less where a queue has had more than its weight
    of late. Shares are whole unless a quota or request is not: what rounding leaves is dealt out one by one,
    by priority, then by what rounding took, then in the order given.

    Parameters
    ----------
    total : float
        GPUs of the parent.
    claims : sequence of Claim
        Older queues first.
    history_weight : float
        KAI's k: how much past use counts; 0: not at all.
    """
    return shares_of_wanted(
        total,
        [claim.wanted for claim in claims],
        [claim.quota for claim in claims],
        [claim.weight for claim in claims],
        [claim.priority for claim in claims],
        [claim.usage for claim in claims],
        history_weight,
    )


def shares_of_wanted(
    total: float,
    wanted: Sequence[float],
    quota: Sequence[float],
    weight: Sequence[float],
    priority: Sequence[int],
    usage: Sequence[float],
    history_weight: float,
    offers: Offers | None = None,
) -> list[float]:
    """Return `fair_shares` of what queues would have if nobody else wanted any; note the offers made."""
    shares = [min(total if own == UNLIMITED else own, most) for own, most in zip(quota, wanted, strict=True)]
    left = total - sum(shares)
    if left <= EPSILON:
        return shares
    if sum(wanted) <= total and all(weight) and not any([one % 1.0 for one in [*wanted, *shares]]):
        return list(wanted)
    lost = [0.0] * len(shares)
    for rank in sorted(set(priority), reverse=True):
        among = [at for at, own in enumerate(priority) if own == rank and weight[at] > 0]
        of_rank = wanted, weight, usage, among, shares, lost
        left, blocked = _by_weight(left, *of_rank, max(history_weight, 0.0), offers)
        if blocked:
            break
    if left > EPSILON:
        order = sorted(range(len(shares)), key=lambda at: (-priority[at], -lost[at], at))
        order = [at for at in order if weight[at] > 0]
        if offers is not None:
            missing = [(at, wanted[at] - shares[at]) for at in order if wanted[at] - shares[at] > EPSILON]
            offers.deal(left, missing, priority, lost)
        _deal_out(left, wanted, order, shares)
    return shares


def _deal_out(left: float, wanted: Sequence[float], order: Sequence[int], shares: list[float]) -> None:
    """Give what rounding has left one by one, in order."""
    while left > EPSILON:
        wanting = [at for at in order if wanted[at] - shares[at] > EPSILON]
        if not wanting:
            return
        for at in wanting:
            given = min(1.0, left, wanted[at] - shares[at])
            shares[at] += given
            left -= given
            if left <= EPSILON:
                return


def _by_weight(
    left: float,
    wanted: Sequence[float],
    weight: Sequence[float],
    usage: Sequence[float],
    rank: Sequence[int],
    shares: list[float],
    lost: list[float],
    history_weight: float,
    offers: Offers | None,
) -> tuple[float, bool]:
    """Give queues of one priority their parts of `left`; return what is left, and whether one wants more."""
    while True:
        wanting = [at for at in rank if wanted[at] - shares[at] > EPSILON]
        weights = sum([weight[at] for at in wanting])
        # By how much each draws on what is left: its weight, less what it has had above that.
        even = [weight[at] / weights for at in wanting]
        parts = [
            max(0.0, own + history_weight * (own - usage[at])) for own, at in zip(even, wanting, strict=True)
        ]
        some = sum(parts)
        if left <= EPSILON or some <= 0:
            if offers is not None and left > EPSILON and wanting:
                offers.certain = False
            return left, False
        missing = [wanted[at] - shares[at] for at in wanting]
        offered = [left * part / some for part in parts]
        if offers is not None:
            offers.turn(wanting, even, left, offered, missing, EPSILON)
        sated = False
        for at, offer, lacks in zip(wanting, offered, missing, strict=True):
            # A share that is whole but for rounding counts as whole.
            given = lacks if offer >= lacks - EPSILON else math.floor(offer + EPSILON)
            lost[at] = 0.0 if given == lacks else max(offer - given, 0.0)
            sated |= offer > lacks + EPSILON
            shares[at] += given
            left -= given
        if not sated:
            return left, any(wanted[at] - shares[at] > EPSILON for at in wanting)
