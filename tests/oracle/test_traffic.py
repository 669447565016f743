"""How much of an iteration is traffic between nodes, and what contention makes of it."""

from dataclasses import replace

import numpy as np
import pytest

import clustergym
from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import Fabric, Locality
from clustergym.common.errors import InputError
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.oracle_config import on_free_links
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.sim.log import EventType

CLASSES = [ModelClass("gpt3", "1.3B", 128), ModelClass("wide_resnet", "500M", 1024)]
COUNTS = [1, 2, 4, 8, 16, 32]


def tables_of(cluster):
    return RooflineOracle().tables(CLASSES, cluster, COUNTS)


@pytest.mark.parametrize(("leaf", "core"), [(1.0, 1.0), (1.0, 2.0), (1.0, 4.0), (2.0, 8.0)])
def test_a_fully_loaded_core_costs_what_the_oracle_says_of_it(leaf, core):
    cluster = replace(load_cluster("arena-a"), fabric=Fabric(4, 2, leaf, leaf, core_oversubscription=core))
    free, traffic_s = on_free_links(tables_of, cluster)
    loaded = tables_of(cluster).execution
    fits = np.isfinite(loaded[..., Locality.CROSS])
    at_full_load = free.execution + (core / leaf - 1.0) * traffic_s
    np.testing.assert_allclose(
        at_full_load[..., Locality.CROSS][fits], loaded[..., Locality.CROSS][fits], rtol=1e-5
    )
    # Free links are as fast everywhere above the leaf, and traffic is never all of an iteration.
    assert (free.execution[..., Locality.CROSS] == free.execution[..., Locality.LEAF]).all()
    assert (traffic_s[..., : Locality.MINIPOD] == 0).all()
    assert (traffic_s[..., Locality.CROSS][fits] > 0).any()
    assert (traffic_s[fits] <= free.execution[fits]).all()


@pytest.mark.slow
def test_a_scenario_with_contention_runs_and_slows_somebody_down():
    tiers = ["nodes_per_leaf=2", "spine_oversubscription=4", "core_oversubscription=4"]
    overrides = ["horizon_s=20000", *(f"cluster.fabric.{tier}" for tier in tiers)]
    off = clustergym.load_scenario("testbed", overrides)
    on = clustergym.load_scenario("testbed", [*overrides, "scenario.contention=true"])
    assert off.communication_s is None
    assert off.sha256 != on.sha256
    events = clustergym.simulate(on, "fcfs").run.simulation.log.events
    rates = [event for event in events if event.event_type == EventType.RATE]
    level = {gpus: at for at, gpus in enumerate(on.tables.counts.tolist())}
    slower = 0
    for event in rates:
        cell = on.class_of[event.job], event.gpu_type, level[event.gpus], event.locality
        assert event.iteration_time_s >= on.execution[cell]
        # No worse than a fully loaded fabric, which is what jobs have without contention.
        assert event.iteration_time_s <= off.execution[cell] * (1 + 1e-5)
        slower += event.iteration_time_s > on.execution[cell]
    assert slower


def test_contention_needs_an_oracle_that_sees_the_fabric(tmp_path):
    path = tmp_path / "times.csv"
    columns = "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,iteration_time_s"
    path.write_text(f"{columns}\ngpt3,1.3B,128,A40,1,2,3.0\n")
    overrides = ["oracle=table", f"oracle.path={path}", "oracle.missing=estimate", "scenario.contention=true"]
    with pytest.raises(InputError, match=r"^scenario\.contention: the table oracle does not know"):
        clustergym.load_scenario("testbed", overrides)
