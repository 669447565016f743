"""Rules that Slurm and Kueue print, as queues and a policy."""

from pathlib import Path

import pytest
import yaml
from clustergym.operators.policies.cohorts import read_kueue_rules
from clustergym.operators.policies.slurm_rules import read_accounts, read_config

from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_policy
from clustergym.scenario.tenants.queue_tree import load_queues

REGRESSIONS = Path(__file__).parents[2] / "regressions"


def tree_of(queues, folder):
    path = folder / "queues.yaml"
    path.write_text(yaml.safe_dump(queues, sort_keys=False))
    return load_queues(path)


def test_settings_of_slurm():
    found, _ = read_config(REGRESSIONS / "slurm-config/valid.txt")
    policy = make_policy(found)
    assert (policy.name, policy.backfill, policy.fair_share) == (
        "slurm-multifactor",
        "slurm",
        "fair_tree",
    )
    assert (policy.weight_age, policy.weight_fair_share, policy.weight_qos) == (1000.0, 10_000.0, 0.0)
    assert (policy.half_life_s, policy.fair_share_interval_s) == (7 * 86_400.0, 300.0)
    assert policy.backfill_resolution_s == 60.0


def test_settings_without_priorities_or_backfill(tmp_path):
    path = tmp_path / "config.txt"
    path.write_text("SchedulerType = sched/builtin\nPriorityType = priority/basic\nPriorityWeightAge = 7\n")
    found, guessed = read_config(path)
    assert (found["backfill"], found["weight_age"], found["weight_fair_share"]) == ("none", 0.0, 0.0)
    assert guessed.total() == 1
    path.write_text("PriorityType = priority/basic\n")
    with pytest.raises(InputError, match="SchedulerType: is missing"):
        read_config(path)
    path.write_text(
        "SchedulerType = sched/builtin\nPriorityType = priority/multifactor\nPriorityMaxAge = 1:xx\n"
    )
    with pytest.raises(InputError, match=r"config\.txt:3: prioritymaxage: '1:xx' is not a time span"):
        read_config(path)


def test_accounts_are_queues(tmp_path):
    found, _ = read_accounts(REGRESSIONS / "slurm-accounts/valid.txt")
    tree = tree_of(found, tmp_path)
    assert tree.leaves == ["team0", "team1", "team2", "others"]
    assert [tree.queues[name].weight for name in tree.leaves] == [3.0, 1.0, 1.0, 0.0]
    assert tree.queues["team2"].limit == 40
    assert tree.leaf("team1", "job") == "team1"
    assert tree.leaf("nobody", "job") == "others"


def test_users_are_queues_and_accounts_are_in_each_other(tmp_path):
    path = tmp_path / "assoc.txt"
    rows = [
        "Account|User|Par Name|Share|GrpTRES",
        "root|||1|",
        "lab||root|4|gres/gpu:a100=16",
        "team||lab|0|",
    ]
    path.write_text("\n".join([*rows, "lab|ann||parent|", "team|bob||1|"]) + "\n")
    found, guessed = read_accounts(path, "user")
    tree = tree_of(found, tmp_path)
    assert tree.path("team/bob") == ["lab", "team", "team/bob"]
    assert (tree.leaf("ann", "j"), tree.leaf("bob", "j")) == ("lab/ann", "team/bob")
    assert tree.queues["lab"].limit == {"A100": 16}
    assert not +guessed
    by_account, _ = read_accounts(path)
    # Jobs of an account with accounts in it have a queue of their own there.
    assert tree_of(by_account, tmp_path).leaf("lab", "j") == "lab/own"
    path.write_text("\n".join(rows).replace("User|", "Login|", 1) + "\n")
    with pytest.raises(InputError, match=r"assoc\.txt:1: User: column missing"):
        read_accounts(path)
    path.write_text("\n".join([*rows, "lab|ann||1|", "team|ann||1|"]) + "\n")
    with pytest.raises(InputError, match="user 'ann' is in lab and team"):
        read_accounts(path, "user")


def test_cluster_queues_of_kueue(tmp_path):
    rules = read_kueue_rules([REGRESSIONS / "kueue-rules/valid.json"])
    tree = tree_of(rules.queues, tmp_path)
    vision = tree.queues["team-vision"]
    assert (vision.parent, vision.quota, vision.weight) == ("research", {"A100-80": 16}, 2.0)
    assert (vision.borrowing_limit, vision.lending_limit) == ({"A100-80": 8}, {"A100-80": 4})
    assert (tree.queues["research"].quota, tree.queues["alone"].borrowing_limit) == ({"A100-80": 16}, 0)
    policy = make_policy(rules.policy)
    assert (policy.reclaim_within_cohort, policy.within_cluster_queue) == ("any", "lower_priority")
    (tmp_path / "flavors.json").write_text('{"kind": "ResourceFlavor", "metadata": {"name": "a100"}}')
    with pytest.raises(InputError, match=r"flavors\.json: has no ClusterQueue \(print them with kubectl"):
        read_kueue_rules([tmp_path / "flavors.json"])
    # Of two queues each has another strategy: the first one's counts, and that is said.
    assert rules.guessed.total() == 3
