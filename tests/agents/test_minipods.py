"""The learned placer's choice of minipods as worked out by hand; its episodes are the simulator's."""

import numpy as np
import pytest

from clustergym.agents import minipods
from clustergym.common.errors import InputError
from clustergym.scenario.by_name import load_scenario
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate
from clustergym.training.placer_checkpoints import NODES
from clustergym.training.placer_evolution import placement_episode


def weights_of(**given: float) -> np.ndarray:
    names = {name.replace("fit ", "fit_").replace(" ", "_"): name for name in minipods.NAMES}
    assert set(given) <= set(names)
    return np.array([given.get(key, 0.0) for key in names])


SIZES = np.array([8, 8, 8])


@pytest.mark.parametrize(
    ("free", "wanted", "may_wait", "weights", "chosen"),
    [
        # Fits into all three; the fewest left free, or the most.
        ([8, 5, 3], 3, True, weights_of(fit_left=-1.0), [0, 0, 3]),
        ([8, 5, 3], 3, True, weights_of(fit_left=1.0), [3, 0, 0]),
        # Exactly full scores 0.5; else 1 for 5/8 and 0.4 for 2/8 left.
        ([8, 5, 3], 3, True, weights_of(fit_left=1.6, fit_exact=0.5), [3, 0, 0]),
        ([8, 5, 3], 3, True, weights_of(fit_left=0.4, fit_exact=0.5), [0, 0, 3]),
        # The largest power of two falls from 8 to 4, and from 4 to 2: one each; from 2 to nothing: two.
        ([8, 5, 3], 3, True, weights_of(fit_lost=-1.0, fit_left=-0.1), [0, 3, 0]),
        # Fits into none: the roomiest, then the tightest that has room for the one node left.
        ([5, 4, 2], 6, True, weights_of(wait=-1.0), [5, 0, 1]),
        # The same over fragments: 2, then 4.
        ([5, 4, 2], 6, True, weights_of(wait=-1.0, fragments=1.0), [0, 4, 2]),
        # It waits if it may, and if a minipod is large enough.
        ([5, 4, 2], 6, True, weights_of(wait=1.0), [0, 0, 0]),
        ([5, 4, 2], 6, False, weights_of(wait=1.0), [5, 0, 1]),
        ([5, 4, 2], 9, True, weights_of(wait=1.0), [5, 4, 0]),
        # Waiting scores 11/24 free x 2 - 1 < 0, and 5/6 room x 2 - 1 > 0.
        ([5, 4, 2], 6, True, weights_of(wait=-1.0, wait_free=2.0), [5, 0, 1]),
        ([5, 4, 2], 6, True, weights_of(wait=-1.0, wait_room=2.0), [0, 0, 0]),
    ],
)
def test_choice(free, wanted, may_wait, weights, chosen):
    assert minipods.choose(np.array(free), SIZES, wanted, may_wait, weights).tolist() == chosen


def test_larger_or_smaller_jobs_move_first():
    nodes = np.array([8, 32, 16, 32])
    assert minipods.move_order(nodes, weights_of(move_nodes=1.0)).tolist() == [1, 3, 2, 0]
    assert minipods.move_order(nodes, weights_of(move_nodes=-1.0)).tolist() == [0, 2, 1, 3]


def test_jobs_across_minipods_move_while_there_is_room_and_they_end_earlier(monkeypatch):
    # Jobs 0 and 1 have 2 + 2 nodes, job 2 has 1 + 1; 4 + 4 nodes are free. Job 0 needs two more of the first
    # minipod; so does job 1, which then leaves none: both go there, the tightest. They have 50 s left inside
    # one, 10 s to move and 100 s if they stay. Job 2 would move for 60 s: 110 > 100.
    episode = minipods.PlacementEpisode(
        submit_s=np.zeros(3),
        order_s=np.zeros(3),
        run_s=np.array([[50.0, 100.0]] * 3),
        nodes=np.array([4, 4, 2]),
        first_s=np.zeros(3),
        move_s=np.array([10.0, 10.0, 60.0]),
        sizes=np.array([9, 9]),
        round_s=60.0,
        defragment_s=600.0,
    )
    where, held, end_s, free = (
        np.full(3, 2),
        np.array([[2, 2], [2, 2], [1, 1]]),
        np.full(3, 100.0),
        np.array([4, 4]),
    )
    assert minipods.ACROSS == 2
    # Compiled, they are called by compiled functions alone.
    for name in ("_move", "_choose_inside", "move_order"):
        monkeypatch.setattr(
            minipods, name, getattr(getattr(minipods, name), "py_func", getattr(minipods, name))
        )
    minipods._move(episode, 0.0, weights_of(fit_left=-1.0, move_nodes=1.0), where, held, end_s, free)
    assert (held.tolist(), free.tolist()) == ([[4, 0], [4, 0], [1, 1]], [0, 8])
    assert (where.tolist(), end_s.tolist()) == ([minipods.INSIDE] * 2 + [2], [60.0, 60.0, 100.0])


WORDS = ["costs=default", "cluster.fabric.core_oversubscription=4.0", "trace.jobs=120", "trace.load=1.2"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_episodes_are_the_simulators(tmp_path, seed):
    scenario = load_scenario("pretraining", WORDS, seed)
    weights = np.random.default_rng(seed).normal(size=len(minipods.NAMES))
    path = tmp_path / "some.safetensors"
    NODES.save(path, weights, {})
    placer = make_placer({"name": "learned", "checkpoint": str(path), "defragment_s": 600.0})
    simulation = simulate(scenario, make_policy({"name": "sjf"}), placer).simulation
    kinds = {event.event_type.value for event in simulation.log.events}
    assert {"migrate", "unplaced"} & kinds
    end_s = {event.job: event.time_s for event in simulation.log.events if event.event_type == "complete"}
    jct_s = np.array([end_s[row] for row in range(120)]) - scenario.trace.submit_s
    found = minipods.run(placement_episode(scenario, 300.0, 600.0), weights)
    assert found == pytest.approx(jct_s, abs=1e-3)


def test_an_episode_needs_whole_nodes():
    with pytest.raises(InputError, match="take jobs of whole nodes on one GPU type"):
        placement_episode(load_scenario("testbed"), 300.0, 600.0)
