"""What the YAML of a network has to say: each fault is one line with a remedy."""

from pathlib import Path

from refusals import refused

from clustergym.training.network_checkpoints import _check

GOOD = {"agent": "maskable_ppo", "hidden": [64, 64], "traces": {"env": {"id": "Elastic-16"}}}


def test_what_is_complete_passes():
    _check(Path("net.yaml"), GOOD)
    _check(Path("net.yaml"), {**GOOD, "hidden": [1, 4096]})


@refused("network-checkpoints")
def test_what_is_not_is_one_line(given, said):
    with said.of_error():
        _check(Path("net.yaml"), {**GOOD, **given})
