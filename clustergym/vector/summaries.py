"""What the info of an episode's end says of it."""

from __future__ import annotations

from typing import Any

from clustergym.metrics.metrics import measure
from clustergym.scenarios.scenario import Scenario
from clustergym.sim.log import EventLog


def summary(scenario: Scenario, log: EventLog, end_s: float) -> dict[str, Any]:
    """Return `metrics` and `digest` of an episode that ended at `end_s` seconds."""
    measured = measure(
        log.events,
        scenario.trace,
        scenario.cluster,
        scenario.reference_iteration_time_s,
        end_s,
        scenario.horizon_s,
        scenario.request_gpus,
        scenario.fair_iteration_time_s,
    )
    return {"metrics": measured.metrics, "digest": log.digest}
