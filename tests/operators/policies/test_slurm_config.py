"""`scontrol show config` as a policy: what is said, what is not said, and bad values."""

from pathlib import Path

from clustergym.operators.policies.slurm_rules import read_config
from refusals import Said, refused

FULL = """\
Configuration data as of 2026-03-03T12:00:00
FairShareDampeningFactor = 3
PriorityCalcPeriod      = 00:05:00
PriorityDecayHalfLife   = 7-00:00:00
PriorityFavorSmall      = Yes
PriorityFlags           = NO_FAIR_TREE
PriorityMaxAge          = 14-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightFairShare = 10000
PriorityWeightJobSize   = 20
PriorityWeightPartition = 30
PriorityWeightQOS       = 40
SchedulerParameters     = bf_interval=60,batch_sched_delay=5, bf_resolution=120,bf_continue
SchedulerType           = sched/backfill
"""
WEIGHTS = ("weight_age", "weight_fair_share", "weight_job_size", "weight_partition", "weight_qos")


def write(folder: Path, text: str) -> Path:
    path = folder / "config.txt"
    path.write_text(text)
    return path


def test_all_that_is_said(tmp_path: Path) -> None:
    found, guessed = read_config(write(tmp_path, FULL))
    assert found == {
        "name": "slurm-multifactor", "round_s": None, "backfill": "slurm", "backfill_interval_s": 60.0,
        "batch_sched_delay_s": 5.0, "backfill_resolution_s": 120.0, "weight_age": 1000.0,
        "weight_fair_share": 10_000.0, "weight_job_size": 20.0, "weight_partition": 30.0, "weight_qos": 40.0,
        "max_age_s": 14 * 86_400.0, "half_life_s": 7 * 86_400.0, "fair_share_interval_s": 300.0,
        "fair_share": "classic", "favor_small": True, "damping": 3.0,
    }  # fmt: skip
    assert not guessed
    assert read_config(write(tmp_path, f"{FULL}BOOT_TIME = 2026-03-02T09:00:07\n"))[0] == {
        **found,
        "booted": "2026-03-02T09:00:07",
    }


def test_what_is_not_said(tmp_path: Path) -> None:
    text = "SchedulerType=sched/backfill\nPriorityType=priority/multifactor\nPriorityMaxAge=0\n"
    found, guessed = read_config(write(tmp_path, text))
    assert found == {
        "name": "slurm-multifactor", "round_s": None, "backfill": "slurm", "backfill_interval_s": 30.0,
        "batch_sched_delay_s": 3.0, "backfill_resolution_s": 60.0, **dict.fromkeys(WEIGHTS, 0.0),
        "fair_share": "fair_tree", "favor_small": False, "damping": 1.0,
    }  # fmt: skip
    assert not guessed
    # A factor of 0 is none, as 1 is.
    assert read_config(write(tmp_path, f"{text}FairShareDampeningFactor=0\n"))[0]["damping"] == 1.0
    found, guessed = read_config(write(tmp_path, "SchedulerType=sched/builtin\n"))
    assert found == {
        "name": "slurm-multifactor", "round_s": None, "backfill": "none", **dict.fromkeys(WEIGHTS, 0.0)
    }  # fmt: skip
    assert dict(guessed) == {"PriorityType is not multifactor: jobs by submission": 1}


@refused("slurm-config")
def test_what_slurm_does_not_print(given: list[str], said: Said, tmp_path: Path) -> None:
    with said.of_error(tmp_path):
        read_config(write(tmp_path, FULL.replace(*given)))
