"""Check that the compiled simulation covers a scenario; docs/commands/run.md has the table."""

from __future__ import annotations

from importlib.util import find_spec

from clustergym.common.errors import InputError
from clustergym.common.paths import install_line
from clustergym.scenario.disturbances.capacity import Capacity
from clustergym.scenario.policy import InformationClass, Placer
from clustergym.scenario.scenario import Scenario

DEFRAGMENT_S = 3600.0
"""Seconds between moves of jobs to closer nodes in environments: the default of `Buddy.defragment_s`."""
PROFILED_TYPES = 6
"""Most GPU types of an environment's cluster on which jobs are profiled: what is known is tabled by each set
of types."""
Reasons = tuple[tuple[bool, str, str], ...]
"""Whether a reason applies; what it is; the key of the configuration."""


class UncoveredError(InputError):
    """Raised if the compiled simulation does not support what is asked for."""


def _reasons(scenario: Scenario, placer: Placer) -> Reasons:
    other = type(placer).__module__ != "clustergym.policies.placers.buddy"
    return (
        (other, "is placed by another placer", "placer"),
        (scenario.trace.outcome is not None, "keeps the outcomes of jobs", "trace.outcomes"),
        (not _rents_alone(scenario), "has disturbances", "scenario"),
        (scenario.parts is not None, "divides GPUs", "cluster"),
        (scenario.trace.nodes is not None, "has jobs that ask for numbers of nodes", "trace"),
        (scenario.cluster.has_domains, "has NVLink domains of several nodes", "cluster"),
        (scenario.tables.segments is not None, "keeps parts of jobs in NVLink domains", "oracle"),
        (scenario.communication_s is not None, "shares network links", "scenario.contention"),
        (scenario.pairs is not None, "lets jobs share GPUs in pairs", "scenario.pairs"),
        (scenario.batch_choices is not None, "has jobs that choose their batch", "scenario.batch"),
    )


def _rents_alone(scenario: Scenario) -> bool:
    """Return whether a scenario has no disturbances, or nodes to rent that nobody takes away."""
    rents = [one for one in scenario.disturbances if isinstance(one, Capacity)]
    taken = any(len(product.supply) > 1 for one in rents for product in one.products)
    return len(rents) == len(scenario.disturbances) and not (rents and (taken or scenario.costs.profile))


def check_runnable(scenario: Scenario, placer: Placer) -> None:
    """Raise an UncoveredError if the compiled simulation does not support a scenario with this placer."""
    if find_spec("numba") is None:
        message, remedy = "the compiled engine needs the package numba", install_line("learn")
        raise UncoveredError(message, field="run.engine", remedy=remedy)
    _check(scenario, _reasons(scenario, placer), "the compiled engine does not cover", "run.engine=simpy")


def check_covered(
    scenario: Scenario, information: InformationClass, placer: Placer, queues: bool = False
) -> None:
    """Raise an UncoveredError if environments on the compiled simulation do not support a scenario.

    `queues` says whether they support queues of tenants.
    """
    profiles = information.value in scenario.costs.profile
    many = profiles and len(scenario.cluster.gpu_types) > PROFILED_TYPES
    own = (
        (bool(scenario.disturbances), "has disturbances", "scenario"),
        (placer.defragment_s != DEFRAGMENT_S, "is placed by another placer", "placer"),
        (bool(scenario.apart_s), "keeps decisions apart", "scenario.apart_s"),
        (scenario.scored_s is not None, "scores the jobs of a window", "scenario.scored_s"),
        (many, f"profiles jobs on more than {PROFILED_TYPES} GPU types", "costs.profile"),
        (scenario.tenants is not None and not queues, "has queues of tenants", "scenario.queues"),
    )
    reasons = _reasons(scenario, placer) + own
    _check(scenario, reasons, "compiled episodes do not cover", "engine=simpy")


def _check(scenario: Scenario, reasons: Reasons, refusal: str, remedy: str) -> None:
    for applies, reason, field in reasons:
        if applies:
            message = f"scenario {scenario.name} {reason}, which {refusal}"
            raise UncoveredError(message, field=field, remedy=f"choose {remedy}")
