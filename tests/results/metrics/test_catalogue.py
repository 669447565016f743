"""What the catalogue says of each metric: pages, tables and boards show it."""

import pytest

from clustergym.results.metrics.catalogue import METRICS, OF_DISTURBANCES, OF_OUTCOMES


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_each_metric_has_a_unit_a_direction_and_a_definition(metric):
    assert metric.unit in ("s", "samples/s", "GPU h", "share", "jobs", "USD", "")
    assert metric.better in ("lower", "higher", "")
    assert len(metric.definition.split()) > 2


def test_neither_way_is_better_for_what_a_policy_does_not_decide():
    undecided = {name for name, metric in METRICS.items() if not metric.better}
    undecided -= {metric.name for metric in (*OF_DISTURBANCES, *OF_OUTCOMES)}
    assert undecided == {"jobs_total", "jobs_submitted", "jobs_scored", "jobs_without_reference"}
    higher = [name for name, metric in METRICS.items() if metric.better == "higher"]
    speeds = ["throughput_mean", "throughput_peak", "normalized_throughput_mean", "gpu_utilization"]
    others = ["ettr_mean", "deadline_satisfaction", "gpu_allocation"]
    tenants = ["tenant_borrowed_gpu_hours", "tenant_jain_index"]
    assert higher == ["jobs_finished", *speeds, *others, *tenants]
