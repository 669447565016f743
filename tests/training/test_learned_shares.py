"""The learned placer of shares in the engine: its decisions, and what it refuses."""

import numpy as np
from clustergym.policies.placers.learned import LearnedPlacer
from error_lines import error_line
from refusals import refused

from clustergym.cluster.allocation import PartAllocations
from clustergym.cluster.parts import Place
from clustergym.commands import run as run_command
from clustergym.envs.sharing.episode import play, start_episode
from clustergym.envs.sharing.streams import Stream
from clustergym.scenario.by_name import load_scenario
from clustergym.scenario.policy import Infeasible
from clustergym.sim.parts.fragmentation import find_usual_requests
from clustergym.training.placer_checkpoints import SHARES

ARRIVALS = 400


def test_it_decides_as_in_an_episode():
    scenario = load_scenario("sharing", ["policy=fcfs", f"trace.jobs={ARRIVALS}", "seed=3"])
    parts, cluster = scenario.parts, scenario.cluster
    nodes, usual = cluster.empty_nodes(), find_usual_requests(parts.rows, parts.accepted)
    episode = start_episode(Stream(nodes, parts.requests, parts.request, usual))
    play(episode, SHARES.load("sharing").weights)
    placer, account = LearnedPlacer(checkpoint="sharing"), PartAllocations(cluster, parts)
    placer.reset(cluster, np.random.default_rng(4))
    found = []
    for arrival in range(ARRIVALS):
        place = placer.place_part(account, arrival)
        if isinstance(place, Place):
            account.allocate(arrival, account.intend(arrival, place))
            found.append((place.node, int(account.devices_of[arrival])))
        else:
            assert isinstance(place, Infeasible)
            found.append((-1, 0))
    assert found == list(zip(episode.node.tolist(), episode.devices.tolist(), strict=True))
    # Some requests fit nowhere, and most nodes are used.
    assert 0 < sum(node < 0 for node, _ in found) < ARRIVALS / 2
    assert len({node for node, _ in found}) > 30


@refused("placer-checkpoints", words=True)
def test_what_it_cannot_place_is_one_line(given, said, capsys):
    assert run_command.main(["policy=sjf", "compare=null", "placer=learned", *given]) == 2
    said.check(error_line(capsys))
