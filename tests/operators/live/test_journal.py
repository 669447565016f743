"""A run that is killed goes on from its journal; a journal is one run's and one process's."""

import json
import re
import time

import numpy as np
import pytest
from clustergym.operators.live.backend import FakeBackend
from clustergym.operators.live.bridge import LiveSimulation
from clustergym.operators.live.clocks import LiveClock, ScaledClock
from clustergym.operators.live.journal import FILE_NAME, check_entry, open_journal, read_journal
from clustergym.operators.live.link import Link

from clustergym.common.errors import InputError
from clustergym.results.measured_run import simulate
from clustergym.scenario.by_name import load_scenario
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import drive


class KilledError(Exception):
    """Stands for a kill -9."""


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("live-small", ["trace.jobs=12"])


@pytest.fixture(scope="module")
def expected(scenario):
    return simulate(scenario, make_policy({"name": "ares"}), "buddy").digest


def run(scenario, backend, folder, calls=10**9, lost=False):
    """Run ares until a number of calls are made; the last one's effect or only its answer is lost."""
    policy, link = make_policy({"name": "ares"}), Link(backend, LiveClock(), 0.01, 1.0)

    def ask(call, given):
        nonlocal calls
        calls -= 1
        if calls == 0 and not lost:
            raise KilledError
        answer = link.ask(call, given)
        if calls == 0:
            raise KilledError
        return answer

    with open_journal(folder, "key", "lockstep") as journal:
        asking = journal.asking(ask, link.continue_run)
        arguments = (policy.information_class, policy.round_s, 0)
        simulation = LiveSimulation(scenario, make_placer({"name": "buddy"}), *arguments)
        simulation.connect(asking, f"cg-{journal.header['run']}")
        link.expected = simulation.allocator.expected
        drive(simulation, policy)
    return simulation


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("calls", [1, 7, 45])
def test_a_killed_run_takes_up_what_runs(scenario, expected, tmp_path, calls, lost):
    backend = FakeBackend(scenario.cluster.node_gpus)
    with pytest.raises(KilledError):
        run(scenario, backend, tmp_path, calls, lost)
    with pytest.raises(KilledError):
        run(scenario, backend, tmp_path, 5, lost)
    simulation = run(scenario, backend, tmp_path)
    assert simulation.log.digest == expected
    # Nothing was started twice.
    names = [entry.name for entry in backend.ended]
    assert sorted(names) == sorted(simulation.allocator.started)


def test_the_clock_goes_on_from_the_last_answer():
    for told, least_s in ((None, 0), (7_000_000, 7)):
        link = Link(FakeBackend(np.array([1])), ScaledClock(3600.0), 0.01, 1.0)
        link.continue_run({"wall_s": time.time() - 1.0, "t": told})
        # A second has passed since.
        assert least_s + 1 <= link.clock.reading() / 1e6 < least_s + 60


def test_a_line_that_was_cut_off_is_asked_again(scenario, expected, tmp_path):
    backend = FakeBackend(scenario.cluster.node_gpus)
    with pytest.raises(KilledError):
        run(scenario, backend, tmp_path, 30)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-10])
    assert run(scenario, backend, tmp_path).log.digest == expected


def test_one_process_at_a_time(tmp_path):
    message = "another process drives this run"
    with open_journal(tmp_path, "k", "lockstep"), pytest.raises(InputError, match=message):
        open_journal(tmp_path, "k", "lockstep").__enter__()


def test_the_journal_of_another_run_stays(tmp_path):
    with open_journal(tmp_path, "one", "lockstep") as journal:
        journal.asking(lambda call, given: {"t": None, "wall_s": 1.0}, print)("stop", {"names": []})
    with pytest.raises(InputError, match="is of another run, which has not ended"):
        open_journal(tmp_path, "two", "lockstep").__enter__()
    header = read_journal(tmp_path / FILE_NAME)[0]
    assert header == {"run": journal.header["run"], "key": "one", "clock": "lockstep"}
    (tmp_path / "result.json").write_text(json.dumps({"run_key": "one"}))
    with open_journal(tmp_path, "two", "lockstep") as journal:
        assert (journal.header["key"], journal.entries) == ("two", [])
    assert not (tmp_path / FILE_NAME).exists()


def test_a_policy_that_decides_otherwise_is_told(scenario, tmp_path):
    backend = FakeBackend(scenario.cluster.node_gpus)
    with pytest.raises(KilledError):
        run(scenario, backend, tmp_path, 30)
    path = tmp_path / FILE_NAME
    path.write_text(path.read_text().replace('"name": "cg-', '"name": "xx-', 1))
    with pytest.raises(InputError, match="the policy decides otherwise than before"):
        run(scenario, backend, tmp_path)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (["wait", {}, {"t": None, "wall_s": 0.0, "gone": ["1"]}], None),
        (["wait", {}, {"t": 3, "wall_s": 0, "down": [1]}], None),
        (["ask", {}, {"t": None, "wall_s": 0.0}], "unknown call 'ask'"),
        (["stop", [], {"t": None, "wall_s": 0.0}], "lacks what stop names, or its answer"),
        (["repair", {}, {"t": None, "wall_s": 0.0}], "lacks what repair names, or its answer"),
        (["repair", {}, {"t": None, "wall_s": 0.0, "back": 1}], "answer.back: 1 is not a bool"),
        (["stop", {}, {"t": None}], "answer.wall_s: is missing"),
        (["stop", {}, {"t": -1, "wall_s": 0.0}], "answer.t: -1 is not valid"),
        (["wait", {}, {"t": None, "wall_s": 0.0, "down": [-1]}], "answer.down: -1 is not valid"),
        (["wait", {}, {"t": None, "wall_s": 0.0, "left": []}], "answer.left: unknown key 'left'"),
    ],
)
def test_what_an_answer_must_have(entry, told):
    if told is None:
        assert check_entry(entry) is None
    else:
        with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
            check_entry(entry)
