"""Accounting: GPUs are conserved, and a refused allocation changes nothing."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clustergym.cluster.allocation import AllocationError, Allocations
from clustergym.cluster.cluster_files import cluster_from_config
from clustergym.cluster.spec import ClusterSpec, Nodes


def small() -> ClusterSpec:
    """Nodes 0-2: A40 with 2 GPUs; nodes 3-4: V100 with 4 GPUs."""
    nodes = [
        {"gpu_type": "A40", "count": 3, "gpus_per_node": 2},
        {"gpu_type": "V100", "count": 2, "gpus_per_node": 4},
    ]
    return cluster_from_config({"name": "small", "nodes": nodes})


def test_allocate_and_release() -> None:
    state = Allocations(small())
    state.allocate(7, ((0, 2), (2, 1)))
    state.allocate(-1, ((4, 3),))
    assert state.free_on_node.tolist() == [0, 2, 1, 4, 1]
    assert state.free.tolist() == [3, 5]
    assert list(state.holders) == [7, -1]
    assert state.holding(7) == ((0, 2), (2, 1))
    assert state.holding(8) == ()
    assert state.release(7) == ((0, 2), (2, 1))
    assert state.free.tolist() == [6, 5]
    assert list(state.holders) == [-1]


def test_what_is_kept_are_plain_integers() -> None:
    state = Allocations(small())
    state.allocate(np.int64(7), ((np.int64(1), np.int64(2)),))  # type: ignore[arg-type]
    assert repr(state.holding(7)) == "((1, 2),)"
    assert repr(list(state.holders)) == "[7]"


def test_the_public_arrays_cannot_be_written() -> None:
    state = Allocations(small())
    for array in (state.free_on_node, state.free):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
    assert small().node_gpus.tolist() == [2, 2, 2, 4, 4]


MISTAKES: dict[str, tuple[Callable[[Allocations], object], str]] = {
    "no free GPU": (lambda s: s.allocate(5, ((0, 1),)), "holder 5: 1 GPUs on node 0, of which 0 of 2.*by 1"),
    "too many": (lambda s: s.allocate(5, ((1, 3),)), "holder 5: 3 GPUs on node 1, of which 2 of 2 are free"),
    "later pair too many": (lambda s: s.allocate(5, ((1, 1), (2, 2))), "2 GPUs on node 2, of which 1 of 2"),
    "holder twice": (lambda s: s.allocate(1, ((1, 1),)), "holder 1 already holds 2 on node 0"),
    "negative GPUs": (lambda s: s.allocate(5, ((1, -1),)), "holder 5: -1 GPUs on node 1"),
    "zero GPUs": (lambda s: s.allocate(5, ((1, 0),)), "holder 5: 0 GPUs on node 1"),
    "unknown node": (lambda s: s.allocate(5, ((5, 1),)), "holder 5: unknown node 5 of 5"),
    "negative node": (lambda s: s.allocate(5, ((-1, 1),)), "holder 5: unknown node -1"),
    "node twice": (lambda s: s.allocate(5, ((1, 1), (1, 1))), "node 1 is listed twice"),
    "descending": (lambda s: s.allocate(5, ((4, 1), (3, 1))), "node 3 is listed twice or out of order"),
    "mixed types": (lambda s: s.allocate(5, ((1, 1), (3, 1))), "node 3 has V100, node 1 A40"),
    "nothing": (lambda s: s.allocate(5, ()), "holder 5 is given no nodes"),
    "release of nothing": (lambda s: s.release(5), "holder 5 holds no GPUs"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_changes_nothing(mistake: str) -> None:
    act, message = MISTAKES[mistake]
    state = Allocations(small())
    state.allocate(1, ((0, 2), (2, 1)))
    before = state.free_on_node.tolist(), state.free.tolist(), dict.fromkeys(state.holders)
    with pytest.raises(AllocationError, match=message):
        act(state)
    assert before == (state.free_on_node.tolist(), state.free.tolist(), dict.fromkeys(state.holders))
    assert state.holding(1) == ((0, 2), (2, 1))
    assert state.holding(5) == ()


def test_fractions_of_a_gpu_are_a_type_error() -> None:
    state = Allocations(small())
    with pytest.raises(TypeError):
        state.allocate(5, ((1, 0.5),))  # type: ignore[arg-type]
    assert state.free.tolist() == [6, 8]


class Accounting(RuleBasedStateMachine):
    """Any calls, right and wrong, against a plain dictionary of who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = small()
        self.state = Allocations(self.spec)
        self.model: dict[int, Nodes] = {}

    def allowed(self, holder: int, nodes: Nodes) -> bool:
        used = self.used()
        in_order = all(a < b for (a, _), (b, _) in itertools.pairwise(nodes))
        known = all(0 <= node < 5 for node, _ in nodes)
        if holder in self.model or not nodes or not in_order or not known:
            return False
        one_type = len({node >= 3 for node, _ in nodes}) == 1
        return one_type and all(0 < g <= int(self.spec.node_gpus[n]) - used[n] for n, g in nodes)

    def used(self) -> list[int]:
        used = [0] * 5
        for nodes in self.model.values():
            for node, gpus in nodes:
                used[node] += gpus
        return used

    @rule(
        holder=st.integers(-2, 6),
        nodes=st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 4)), max_size=3),
        ordered=st.booleans(),
    )
    def allocate(self, holder: int, nodes: list[tuple[int, int]], ordered: bool) -> None:
        asked = tuple(sorted(nodes) if ordered else nodes)
        if self.allowed(holder, asked):
            self.state.allocate(holder, asked)
            self.model[holder] = asked
        else:
            with pytest.raises(AllocationError):
                self.state.allocate(holder, asked)

    @rule(holder=st.integers(-2, 6))
    def release(self, holder: int) -> None:
        if holder in self.model:
            assert self.state.release(holder) == self.model.pop(holder)
        else:
            with pytest.raises(AllocationError):
                self.state.release(holder)

    @invariant()
    def conserved(self) -> None:
        used = np.array(self.used())
        assert (self.state.free_on_node + used).tolist() == self.spec.node_gpus.tolist()
        assert self.state.free.tolist() == [6 - used[:3].sum(), 8 - used[3:].sum()]
        assert set(self.state.holders) == set(self.model)


TestAccounting = Accounting.TestCase
TestAccounting.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
