"""Cohorts as Kueue's, priorities as Slurm's, entitlements as Volcano's and YARN's: worked examples."""

from functools import partial

import pytest
from clustergym.operators.policies.cohorts import QuotaNode, sides_below_common_cohort
from clustergym.operators.policies.slurm_rules import classic_fair_share, fair_tree
from hypothesis import given
from hypothesis import strategies as st

from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, Settings

GPU = "A100"
Cohort = partial(QuotaNode, gpu_types=(GPU,))


def top():
    """A cohort that owns 300 GPUs, and lends them to two cohorts of queues without any."""
    first = (Cohort("1A"), Cohort("1B"), Cohort("1C", weight=3.0))
    return Cohort(
        "top",
        nominal={GPU: 300},
        children=(Cohort("C1", children=first), Cohort("C2", children=(Cohort("2A"),))),
    )


def nodes_of(cohort):
    return {node.name: node for node in cohort.walk()}


def test_shares_where_each_queue_has_its_part():
    nodes = nodes_of(top())
    for name, gpus in {"1A": 30, "1B": 30, "1C": 90, "2A": 150}.items():
        nodes[name].use(0, gpus)
    # Half of 300 GPUs is borrowed by each cohort; of the first's, which has none of its own, a tenth by 1A.
    assert [nodes[name].share() for name in ("C1", "C2")] == [(False, 0.5), (False, 0.5)]
    assert [nodes[name].share()[1] for name in ("1A", "1B", "1C")] == pytest.approx([0.1] * 3)
    assert nodes["1A"].available(0) == 0


def lenders(**limits):
    a, b = Cohort("a", nominal={GPU: 8}, **limits), Cohort("b", nominal={GPU: 8})
    return Cohort("all", children=(a, b, Cohort("c", nominal={GPU: 0}, weight=0.0)))


def test_what_is_lent_and_borrowed_is_limited():
    nodes = nodes_of(lenders(lending_limit={GPU: 6}, borrowing_limit={GPU: 3}))
    a, b = nodes["a"], nodes["b"]
    assert a.available(0) == a.attainable[0] == 11  # 8 of its own and 3 of the other's
    assert b.available(0) == b.attainable[0] == 14  # 8 and 6
    a.use(0, 1.0)  # of the 2 that it keeps
    assert (b.available(0), a.count_reserved_gpus(0)) == (14, 1)
    a.use(0, 4.0)  # 3 of them of those that it would lend
    assert b.available(0) == 11
    b.use(0, 11.0)
    assert (b.available(0), a.available(0)) == (0, 0)
    assert b.borrows(0)
    b.use(0, -11.0)
    a.use(0, -5.0)
    assert a.available(0) == 11


def test_a_node_without_weight_that_borrows_comes_after_all_others():
    nodes = nodes_of(lenders())
    nodes["b"].use(0, 12.0)  # borrows 4 of 16
    nodes["c"].use(0, 1.0)
    assert nodes["b"].share() == (False, 0.25)
    assert nodes["c"].share() == (True, 1 / 16) > nodes["b"].share()


def test_sides_are_the_children_of_the_lowest_common_cohort():
    nodes = nodes_of(top())
    assert sides_below_common_cohort(nodes["1A"], nodes["2A"]) == (nodes["C1"], nodes["C2"])
    assert sides_below_common_cohort(nodes["1A"], nodes["1C"]) == (nodes["1A"], nodes["1C"])


@given(st.lists(st.tuples(st.sampled_from(["1A", "1B", "1C", "2A"]), st.integers(1, 60)), max_size=20))
def test_what_is_used_and_given_back_leaves_nothing(steps):
    nodes, used = nodes_of(top()), []
    for name, gpus in steps:
        if gpus <= nodes[name].available(0):
            nodes[name].use(0, float(gpus))
            used.append((name, gpus))
        assert 0 <= nodes["top"].used[0] == sum(gpus for _, gpus in used) <= 300
    for name, gpus in used:
        nodes[name].use(0, -float(gpus))
    assert all(not any(node.used) for node in nodes.values())


def accounts(**parents):
    """A tree of queues, each of which has the weight 1, given the parent of each."""
    return QueueTree({name: Queue(parent=parent) for name, parent in parents.items()}, Settings())


def test_the_fair_tree_ranks_users_of_the_better_account_first():
    tree = accounts(A=None, B=None, a1="A", a2="A", b1="B")
    used = {"a1": 60.0, "a2": 15.0, "b1": 25.0}
    assert fair_tree(tree, used) == {"b1": 1.0, "a2": pytest.approx(2 / 3), "a1": pytest.approx(1 / 3)}


def test_accounts_that_tie_are_merged_and_users_that_tie_share_a_rank():
    tree = accounts(A=None, B=None, a1="A", a2="A", b1="B", b2="B")
    used = {"a1": 10.0, "a2": 40.0, "b1": 40.0, "b2": 10.0}
    assert fair_tree(tree, used) == {"a1": 1.0, "b2": 1.0, "a2": 0.5, "b1": 0.5}


@pytest.mark.parametrize(("used", "factor"), [(1.0, 0.5), (2.0, 0.25), (0.0, 1.0)])
def test_the_classic_fair_share_halves_for_each_share_that_is_used(used, factor):
    # a has a fifth of the shares and has used so many fifths.
    tree = accounts(a=None, b=None, c=None, d=None, e=None)
    assert classic_fair_share(tree, {"a": used, "b": 5.0 - used}, damping=1.0)["a"] == factor
