"""Trees of queues: what a file may say, and one line for what it may not."""

import math

import pytest
from refusals import refused

from clustergym.common.errors import InputError
from clustergym.scenario.tenants.queue_tree import (
    Queue,
    QueueTree,
    Settings,
    get_most_gpus,
    get_reserved_gpus,
    load_queues,
    of_type,
    queues_by_member,
)

FILE = """\
assign_by: user
unknown: others
history: {half_life_s: 86400}
queues:
  research: {quota: {A100: 48}, limit: {A100: 64}}
  vision: {parent: research, quota: {A100: 32}, members: [ann, bob], reclaim_min_runtime_s: 600}
  speech: {parent: research, quota: {A100: 16}, guarantee: {A100: 8}, weight: 2}
  others: {priority: 50}
"""


def written(tmp_path, text):
    path = tmp_path / "queues.yaml"
    path.write_text(text)
    return path


def test_a_file_is_read(tmp_path):
    tree = load_queues(written(tmp_path, FILE))
    assert list(tree.queues) == ["research", "vision", "speech", "others"]
    assert tree.leaves == ["vision", "speech", "others"]
    assert tree.children == {
        None: ["research", "others"],
        "research": ["vision", "speech"],
        **{name: [] for name in tree.leaves},
    }
    assert [tree.leaf(user, "job-1") for user in ("ann", "speech", "eve")] == ["vision", "speech", "others"]
    assert tree.settings.history.half_life_s == 86_400.0
    research = tree.queues["research"]
    assert [of_type(research.quota, kind) for kind in ("A100", "V100")] == [48, 0]
    assert [of_type(research.limit, kind, math.inf) for kind in ("A100", "V100")] == [64, math.inf]


def test_a_parent_may_stand_below_its_children(tmp_path):
    tree = load_queues(written(tmp_path, "queues: {leaf: {parent: team}, team: {}}"))
    assert list(tree.queues) == ["team", "leaf"]


def test_the_time_for_which_a_job_is_safe_is_that_below_the_common_parent():
    """The worked example of KAI-Scheduler's documentation."""
    queues = {
        "A": Queue(),
        "B": Queue("A", reclaim_min_runtime_s=600.0),
        "C": Queue("B"),
        "leaf1": Queue("C", reclaim_min_runtime_s=0.0),
        "leaf2": Queue("C", reclaim_min_runtime_s=180.0),
        "D": Queue("B", reclaim_min_runtime_s=60.0),
        "leaf3": Queue("D", preempt_min_runtime_s=5.0),
    }
    tree = QueueTree(queues, Settings())
    assert tree.reclaim_min_runtime_s("leaf1", "leaf3") == 60
    assert tree.reclaim_min_runtime_s("leaf1", "leaf2") == 180
    assert tree.reclaim_min_runtime_s("leaf3", "leaf1") == 600
    assert [tree.preempt_min_runtime_s(leaf) for leaf in ("leaf3", "leaf1")] == [5, 0]


def test_queues_of_virtual_clusters_share_alike():
    tree = queues_by_member(["b", "a", "b"])
    assert tree.leaves == ["a", "b"]
    assert tree.leaf("b", "job") == "b"
    with pytest.raises(InputError, match="job-7: no queue takes virtual_cluster 'c'"):
        tree.leaf("c", "job-7")


@refused("queues")
def test_what_is_wrong_is_one_line(given, said, tmp_path):
    with said.of_error(tmp_path):
        load_queues(written(tmp_path, given))


def test_quotas_may_exceed_their_parents_if_the_file_says_so(tmp_path):
    text = "oversubscribe: true\nqueues:\n  a: {quota: 4}\n  b: {parent: a, quota: 9}"
    assert load_queues(written(tmp_path, text)).leaves == ["b"]


def test_quotas_may_not_exceed_the_cluster_unless_the_file_says_so(tmp_path):
    text = "queues:\n  a: {quota: {V100: 6}}\n  b: {quota: {V100: 3}}"
    with pytest.raises(InputError) as caught:
        load_queues(written(tmp_path, text)).check_capacity(["V100", "A100"], [8, 8])
    told = "queues.yaml:3: queues.b.quota: V100: 9 GPUs of a, b are more than the cluster's 8 (lower the"
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(told)
    load_queues(written(tmp_path, "oversubscribe: true\n" + text)).check_capacity(["V100"], [8])


@pytest.mark.parametrize(
    ("guarantee", "lending_limit", "kept"),
    [(1.0, None, 1.0), (1.0, 6.0, 2.0), (5.0, 6.0, 5.0), (0.0, 9.0, 0.0), (3.0, {"X": None}, 3.0)],
)
def test_nobody_else_uses_the_guarantee_nor_what_is_not_lent(guarantee, lending_limit, kept):
    # Of a quota of 8, 8 - 6 = 2 GPUs are not lent; the greater of both is kept.
    assert get_reserved_gpus(Queue(quota=8.0, guarantee=guarantee, lending_limit=lending_limit), "X") == kept


@pytest.mark.parametrize(
    ("limit", "borrowing_limit", "most"),
    [
        (5.0, None, 5.0),
        ({"X": 5.0}, None, 5.0),
        ({"Y": 5.0}, None, math.inf),
        ({"Y": 5.0}, {"Y": 1.0}, math.inf),
        ({"Y": 5.0}, 2.0, 10.0),
        ({"X": 9.0}, 2.0, 9.0),
    ],
)
def test_a_type_that_a_limit_leaves_out_is_without_limit(limit, borrowing_limit, most):
    # Of X, a quota of 8 and 2 more to borrow are 10.
    assert get_most_gpus(Queue(quota=8.0, limit=limit, borrowing_limit=borrowing_limit), "X") == most


def test_sums_of_quotas_count_types_that_few_queues_name(tmp_path):
    # Of X: 2 and 2 and 1; of Y: 2 and 3, as the third names Y alone.
    path = tmp_path / "queues.yaml"
    children = "  a: {parent: root, quota: 2}\n  b: {parent: root, quota: {X: 2}}\n"
    path.write_text(f"queues:\n  root: {{quota: 4}}\n{children}  c: {{parent: root, quota: {{Y: 3}}}}\n")
    with pytest.raises(InputError, match="4 GPUs are less than the 5 of a, b, c"):
        load_queues(path)
    path.write_text(f"queues:\n  root: {{quota: 5}}\n{children}  c: {{parent: root, quota: {{Y: 3}}}}\n")
    assert load_queues(path).leaves == ["a", "b", "c"]
