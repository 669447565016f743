"""Live runs beside other users' jobs, and a Slurm that is started anew: printed outputs, no Slurm."""

import getpass
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
from clustergym.operators.live import live_run
from clustergym.operators.live.backend import Part
from clustergym.operators.live.bridge import LiveSimulation
from clustergym.operators.live.checks import LiveOptions, choose_words
from clustergym.operators.live.clocks import LiveClock, ScaledClock
from clustergym.operators.live.link import MOST_REFUSALS, Link
from clustergym.operators.live.slurm import SlurmWords
from clustergym.operators.live.slurm_backend import SlurmBackend
from printed_slurm import EVE, OWN, PrintedSlurm
from scenarios import Job, small_cluster, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.measured_run import simulate
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import drive

ENDS = "\n"
NAMES = [
    "a|b",
    "a\nb",
    "a\n1|RUNNING|ann|1|N/A|n1|cg-x-0-1.0",
    f"a\n1|{OWN}|RUNNING|4|N/A|n1",
    f"a\n1|{OWN}|cg-x-0-1.0",
    "cg-x-0-1.0",
    "cg-x-1-1.0",
    "clustergym-live-x",
    "a|clustergym-live-x",
    "\x1c\x85\u2028",
    "",
]


@pytest.fixture
def slurm():
    return PrintedSlurm({"n0": 2, "n1": 2, "n2": 2})


@pytest.fixture
def scenario():
    """Return two nodes and two jobs; an iteration takes 1 s."""
    jobs = [Job("a", 0, 100, gpus=4), Job("b", 50, 100, gpus=2)]
    return small_scenario(jobs, {"A": (2, 2)}, {"m": {"A": dict.fromkeys((1, 2, 4), 1.0)}})


def backend(slurm, run="x", gres=False):
    return SlurmBackend(slurm, SlurmWords(["n0", "n1"], "", gres, ()), run)


def live(scenario, slurm, patience_s=0.5):
    """Run fcfs on printed commands; return the digest."""
    policy, link = make_policy({"name": "fcfs"}), Link(backend(slurm), LiveClock(), 0.005, patience_s)
    arguments = (policy.information_class, policy.round_s, 0)
    simulation = LiveSimulation(scenario, make_placer({"name": "buddy"}), *arguments)
    simulation.connect(link.ask, "cg-x")
    link.expected = simulation.allocator.expected
    drive(simulation, policy)
    return simulation.log.digest


@pytest.fixture
def expected(scenario):
    return simulate(scenario, make_policy({"name": "fcfs"}), "buddy").digest


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("user", [EVE, OWN])
def test_no_name_of_a_job_ends_a_run(scenario, expected, slurm, name, user):
    theirs = slurm.add("-", ("n2",), user=user, comment=f"|x\n{name}")
    theirs.number, theirs.name = 7001, name
    assert live(scenario, slurm) == expected
    # It is still there, and nothing of the run is.
    assert slurm.jobs == [theirs]


def test_a_foreign_job_called_like_an_allocation_is_not_taken_for_it(slurm):
    ours = backend(slurm)
    assert ours.submit("cg-x-0-1.0", Part((0,), 2)) == ""
    theirs = slurm.add("cg-x-0-1.0", ("n1",), user=EVE)
    own = slurm.add("cg-x-0-1.0", ("n2",))
    assert ours.poll().parts == {"cg-x-0-1.0": Part((0,), 2)}
    ours.cancel(["cg-x-0-1.0"])
    assert slurm.jobs == [theirs, own]
    assert ours.poll().parts == {}


def test_close_ends_what_is_known_by_its_numbers_and_asks_nothing(slurm):
    ours = backend(slurm)
    ours.claim("/out")
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    ours.submit("cg-x-1-1.0", Part((1,), 2))
    theirs = slurm.add("cg-x-0-1.0", ("n2",), user=EVE)
    slurm.before["squeue"] = slurm.before["sinfo"] = lambda words: ("", "slurmctld is down", 1)
    slurm.calls.clear()
    ours.close()
    assert slurm.jobs == [theirs]
    assert [words[0] for words in slurm.calls] == ["scancel"]


def test_close_ends_an_allocation_of_which_the_answer_was_lost(slurm):
    ours = backend(slurm)

    def hang(words):
        del slurm.before["salloc"]
        slurm.run(*words)
        raise InputError("salloc did not come back within 60 s", remedy="ask again")

    slurm.before["salloc"] = hang
    with pytest.raises(InputError, match="did not come back"):
        ours.submit("cg-x-0-1.0", Part((0,), 2))
    theirs = slurm.add("cg-x-0-1.0", ("n2",), user=EVE)
    assert ours.close() == ""
    assert slurm.jobs == [theirs]


def test_close_says_what_it_could_not_end(slurm):
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    slurm.before["scancel"] = lambda words: ("", "scancel: error: no answer\n", 1)
    assert ours.close() == "scancel: error: no answer: scancel 1"
    # A job that has ended already is no fault.
    told = "scancel: error: Kill job error on job id 1: Invalid job id specified\n"
    slurm.before["scancel"] = lambda words: ("", told, 1)
    assert ours.close() == ""


def test_what_may_be_left_stands_in_the_error_line(slurm):
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    slurm.before["scancel"] = lambda words: ("", "scancel: error: no answer\n", 1)
    message = r"^first \(do it again\); it may have left jobs: .* no answer: scancel 1 \(end them by hand\)$"
    with pytest.raises(InputError, match=message), live_run._closing(ours):
        raise InputError("first", remedy="do it again")


@pytest.mark.parametrize("told", ["", "\ufffd\ufffd", "salloc: Granted job allocation \ufffd"])
def test_an_allocation_whose_number_cannot_be_read_is_found_by_user_and_name(slurm, told):
    ours = backend(slurm)
    slurm.add("cg-x-0-1.0", ("n2",), user=EVE)

    def garble(words):
        del slurm.before["salloc"]
        slurm.run(*words)
        return "", told, 0

    slurm.before["salloc"] = garble
    assert ours.submit("cg-x-0-1.0", Part((0,), 2)) == ""
    assert ours.poll().parts == {"cg-x-0-1.0": Part((0,), 2)}
    ours.close()
    assert [job.user for job in slurm.jobs] == [EVE]


def test_a_run_started_again_takes_up_its_own_users_allocations_only(slurm):
    before = backend(slurm)
    before.claim("/out")
    before.submit("cg-x-0-1.0", Part((0,), 2))
    slurm.add("cg-x-1-1.0", ("n1",), user=EVE)
    slurm.add("cg-xx-1-1.0", ("n2",))
    again = backend(slurm)
    assert again.first_claim()[0]
    assert again.poll().parts == {"cg-x-0-1.0": Part((0,), 2)}
    # Another user's job on its nodes is another's.
    assert again.others() == ["job 3 of eve is running on n1"]


def test_the_first_claim_has_the_cluster_and_only_ones_own_is_ones_own(slurm):
    assert backend(slurm).first_claim() is None
    slurm.add("a\n0|0|root|clustergym-live", user=EVE)
    slurm.add("a|clustergym-live-x", user=EVE)
    assert backend(slurm).first_claim() is None
    theirs = slurm.add("clustergym-live", user=EVE, comment="x /their|s\n1|0|root")
    ours = backend(slurm)
    ours.claim("/ours")
    assert ours.first_claim() == (False, "run x of eve, /their|s 1|0|root")
    ours.close()
    assert theirs in slurm.jobs
    assert len(slurm.jobs) == 3


def test_a_claim_that_is_not_shown_ends_in_a_line(slurm):
    slurm.before["squeue"] = lambda words: ("\ufffd|garbled\n", "", 0)
    with pytest.raises(InputError, match="does not show the job with which the run claims the cluster"):
        live_run._claim(backend(slurm), "/out")


@pytest.mark.parametrize(
    "line", ["1|{own}|RUNNING|4K|N/A|n0", "1|{own}|RUNNING||N/A|n0", "1|", "1|{own}|RUNNING|2|N/A|n0|more"]
)
def test_a_garbled_line_of_ours_is_asked_again_and_at_last_ends_in_a_line(slurm, line):
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    link, times = Link(ours, LiveClock(), 0.001, 60.0), itertools.count()
    garbled = line.format(own=OWN) + ENDS
    slurm.before["squeue"] = lambda words: (garbled, "", 0) if next(times) < 3 else None
    link.expected = lambda: {"cg-x-0-1.0": Part((0,), 2)}
    assert link.ask("wait", {"due": 5, "down": []})["gone"] == []
    slurm.before["squeue"] = lambda words: (garbled, "", 0)
    link.patience_s = 0.02
    with pytest.raises(InputError, match=r"squeue shows job 1 as '1\|"):
        link.ask("wait", {"due": 5, "down": []})


def test_garbled_lines_of_nodes_are_left_out(slurm):
    ours = backend(slurm)
    slurm.before["sinfo"] = lambda words: ("n0\n\ufffd\ufffd|\n|||\nn1|down*\nn0|idle|x\nn9|down\n", "", 0)
    assert ours.poll().down == {1}


# A Slurm that is started anew


def restarted(slurm, at, calls):
    """Let all nodes be unknown for some calls of sinfo from a call on."""
    times = itertools.count(1)

    def before(words):
        if at <= next(times) < at + calls:
            return "".join(f"{node}|unknown\n" for node in slurm.cpus), "", 0
        return None

    slurm.before["sinfo"] = before


@pytest.mark.parametrize("calls", [1, 10])
@pytest.mark.parametrize("at", range(2, 9))
def test_healthy_allocations_stay_while_slurmctld_is_started_anew(scenario, expected, slurm, at, calls):
    restarted(slurm, at, calls)
    assert live(scenario, slurm, patience_s=60.0) == expected
    assert sum(words[0] == "salloc" for words in slurm.calls) == 2


@pytest.mark.parametrize("command", ["squeue", "sinfo"])
def test_polls_without_an_answer_are_repeated(scenario, expected, slurm, command):
    times = itertools.count()
    down = ("", "error: Unable to contact slurm controller", 1)
    slurm.before[command] = lambda words: down if 2 <= next(times) < 6 else None
    assert live(scenario, slurm, patience_s=60.0) == expected
    slurm.before[command] = lambda words: down if next(times) > 12 else None
    with pytest.raises(InputError, match="Unable to contact slurm controller"):
        live(scenario, slurm, patience_s=0.02)


@pytest.mark.parametrize("clock", [LiveClock(), ScaledClock(1.0)])
def test_a_node_is_lost_if_two_polls_show_it_and_found_again_likewise(slurm, clock):
    ours = backend(slurm)
    link, told = Link(ours, clock, 0.001, 60.0), {"n0": "idle", "n1": "idle"}

    def wait(states, down):
        shown = iter(states)
        slurm.before["sinfo"] = lambda words: (f"n0|{next(shown, states[-1])}\nn1|{told['n1']}\n", "", 0)
        clock.begin(0.0, 0)
        return link.ask("wait", {"due": 3_600e6, "down": down}).get("down", down)

    clock.compute_wait_s = lambda tick: 0.0
    link._polled = -1.0
    assert wait(["down", "idle"], []) == []
    link._polled = -1.0
    assert wait(["down"], []) == [0]
    link._polled = -1.0
    assert wait(["idle", "down"], [0]) == [0]
    link._polled = -1.0
    assert wait(["idle"], [0]) == []


def test_an_allocation_is_gone_if_two_polls_show_it(slurm):
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    link, times = Link(ours, LiveClock(), 0.001, 60.0), itertools.count()
    link.expected = lambda: {"cg-x-0-1.0": Part((0,), 2)}
    slurm.before["squeue"] = lambda words: ("", "", 0) if next(times) == 0 else None
    assert link.ask("wait", {"due": 5, "down": []})["gone"] == []
    slurm.jobs.clear()
    assert link.ask("wait", {"due": 5, "down": []})["gone"] == ["cg-x-0-1.0"]


def test_an_allocation_is_not_as_asked_if_two_polls_show_it(slurm):
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    link, times = Link(ours, LiveClock(), 0.001, 60.0), itertools.count()
    link.expected = lambda: {"cg-x-0-1.0": Part((0,), 2)}
    one = f"1|{OWN}|RUNNING|1|N/A|n0\n"
    slurm.before["squeue"] = lambda words: (one, "", 0) if next(times) == 0 else None
    assert link.ask("wait", {"due": 5, "down": []})["gone"] == []
    slurm.before["squeue"] = lambda words: (one, "", 0)
    with pytest.raises(InputError, match=r"cg-x-0-1\.0: holds 1 GPUs on each of nodes \[0\], not what was"):
        link.ask("wait", {"due": 5, "down": []})


def test_a_node_that_does_not_answer_is_out_of_use_after_the_patience(slurm, monkeypatch):
    link = Link(backend(slurm), LiveClock(), 0.0, 10.0)
    now = 100.0
    monkeypatch.setattr(
        "clustergym.operators.live.link.time",
        SimpleNamespace(
            monotonic=lambda: now, sleep=lambda s: None, perf_counter=lambda: now, time=lambda: now
        ),
    )
    slurm.states["n0"] = "idle*"
    assert link.ask("wait", {"due": 5, "down": []})["down"] == []
    # One that is out of use already stays so.
    assert link.ask("wait", {"due": 5, "down": [0]})["down"] == [0]
    now += 9.0
    assert link.ask("wait", {"due": 5, "down": []})["down"] == []
    now += 2.0
    assert link.ask("wait", {"due": 5, "down": []})["down"] == [0]


def test_a_call_that_was_lost_is_made_again(slurm, monkeypatch):
    monkeypatch.setattr("clustergym.operators.live.link.AGAIN_S", 0.0)
    ours, times = backend(slurm), itertools.count()
    link = Link(ours, LiveClock(), 0.001, 5.0)
    link.ask("start", {"name": "cg-x-0-1", "nodes": [[0, 2]]})
    lost = ("", "scancel: error: Unable to contact slurm controller", 1)
    slurm.before["scancel"] = lambda words: lost if next(times) == 0 else None
    link.ask("stop", {"names": ["cg-x-0-1.0"]})
    assert slurm.jobs == []


def test_an_allocation_that_ends_slowly_is_as_it_was(slurm):
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0, 1), 2))
    slurm.jobs[0].state, slurm.jobs[0].nodes, slurm.jobs[0].cpus = "COMPLETING", ("n1",), 1
    assert ours.poll().parts == {"cg-x-0-1.0": Part((0, 1), 2)}


# Launches that are refused


def test_a_launch_that_is_refused_again_and_again_is_said_and_given_up(scenario, slurm, capsys):
    slurm.add("theirs", ("n0",), cpus=2, user=EVE)
    with pytest.raises(InputError) as raised:
        live(scenario, slurm)
    told = "salloc: error: Unable to allocate resources: Requested nodes are busy"
    assert f"cg-x-0: the scheduler refused its launch {MOST_REFUSALS} times" in str(raised.value)
    assert told in str(raised.value)
    assert sum(words[0] == "salloc" for words in slurm.calls) == MOST_REFUSALS
    limit = f"(asked again; given up after {MOST_REFUSALS} times and 0.5 s)"
    assert capsys.readouterr().err == f"note: cg-x-0: the scheduler refuses its launch: {told} {limit}\n"


def test_waiting_jobs_are_refused_beside_each_other(slurm, capsys, monkeypatch):
    """Three jobs that are refused in turn do not wait three times as long."""
    times = [100.0]
    fake = SimpleNamespace(
        perf_counter=lambda: 0.0, time=lambda: 0.0, sleep=lambda s: times.append(times[-1] + s)
    )
    fake.monotonic = lambda: times[-1]
    monkeypatch.setattr("clustergym.operators.live.link.time", fake)
    slurm.add("theirs", ("n0", "n1"), cpus=4, user=EVE)
    link = Link(backend(slurm), LiveClock(), 0.001, 19.0)
    launches = itertools.product(range(MOST_REFUSALS - 1), range(3))
    for attempt, job in launches:
        link.ask("start", {"name": f"cg-x-{job}-{attempt}", "nodes": [[0, 2]]})
    # A second for each of the 19 times that a job is asked for again.
    with pytest.raises(
        InputError, match=f"cg-x-0: the scheduler refused its launch {MOST_REFUSALS} times in 19 s"
    ):
        link.ask("start", {"name": "cg-x-0-19", "nodes": [[0, 2]]})
    assert times[-1] == 119.0
    assert capsys.readouterr().err.count("note: ") == 3


def test_refusals_are_counted_by_job_until_it_starts(slurm, capsys):
    ours = backend(slurm)
    link = Link(ours, ScaledClock(60.0), 0.001, 0.0)
    busy = ("", "salloc: error: busy\n", 1)
    for job in (0, 1):
        for attempt in range(1, MOST_REFUSALS + 1):
            last = attempt == MOST_REFUSALS
            slurm.before["salloc"] = lambda words, last=last: None if last else busy
            answer = link.ask("start", {"name": f"cg-x-{job}-{attempt}", "nodes": [[job, 2]]})
            assert answer.get("refused") == (None if last else "salloc: error: busy")
    assert link._refused_at == {}
    assert capsys.readouterr().err.count("note: ") == 2


def test_on_a_clock_that_runs_refusals_are_given_up_after_the_patience(slurm, monkeypatch):
    now = 100.0
    monkeypatch.setattr(
        "clustergym.operators.live.link.time",
        SimpleNamespace(monotonic=lambda: now, perf_counter=lambda: now, time=lambda: now),
    )
    link = Link(backend(slurm), ScaledClock(60.0), 0.001, 60.0)
    slurm.before["salloc"] = lambda words: ("", "salloc: error: busy\n", 1)
    for attempt in range(3 * MOST_REFUSALS):
        now = 100.0 + attempt
        answer = link.ask("start", {"name": f"cg-x-0-{attempt}", "nodes": [[0, 2]]})
        assert answer["refused"] == "salloc: error: busy"
    now = 160.0
    with pytest.raises(InputError, match="cg-x-0: the scheduler refused its launch 61 times in 60 s"):
        link.ask("start", {"name": "cg-x-0-60", "nodes": [[0, 2]]})


def test_a_partial_start_holds_nothing(slurm):
    """Of a launch with 2 GPUs on a node and 1 on another, the second is refused: the first is given back."""
    link = Link(backend(slurm), LiveClock(), 0.001, 0.5)
    theirs = slurm.add("theirs", ("n1",), cpus=2, user=EVE)
    answer = link.ask("start", {"name": "cg-x-0-1", "nodes": [[0, 2], [1, 1]]})
    assert "Requested nodes are busy" in answer["refused"]
    assert slurm.jobs == [theirs]
    # It is confirmed before the answer is given.
    words = [words[0] for words in slurm.calls]
    assert words.index("scancel") < len(words) - 1 - words[::-1].index("squeue")
    slurm.jobs.clear()
    assert "refused" not in link.ask("start", {"name": "cg-x-0-2", "nodes": [[0, 2], [1, 1]]})
    assert [(job.name, job.nodes) for job in slurm.jobs] == [("cg-x-0-2.0", ("n0",)), ("cg-x-0-2.1", ("n1",))]


# Slurm's log of ended jobs


def test_names_in_slurms_log_neither_end_a_run_nor_stand_for_its_jobs(slurm, tmp_path):
    user = f"{getpass.getuser()}({OWN})"

    def line(number, name, nodes="n0", by=user, end="2026-01-01T00:01:00", rest="NodeCnt=1 WorkDir=/x "):
        return (
            f"JobId={number} UserId={by} GroupId=g(1) Name={name} JobState=COMPLETED Partition=main "
            f"TimeLimit=UNLIMITED StartTime=2026-01-01T00:00:00 EndTime={end} NodeList={nodes} {rest}\n"
        )

    path = tmp_path / "jobs.txt"
    slurm.before["scontrol"] = lambda words: (
        (f"JobCompLoc = {path}\nJobCompType = jobcomp/filetxt\n", "", 0)
        if words[1:] == ("show", "config")
        else ("", "scontrol: error: Invalid hostlist", 1)
    )
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    forged = [
        line(1, "a\nName=cg-x-0-1.0 JobState=COMPLETED"),
        line(9, "cg-x-0-1.0", "n1"),
        line(9, "cg-x-1-1.0", by="eve(4242)"),
        line(9, "cg-x-2-1.0", "n[bad"),
        line(9, "cg-x-3-1.0", end="Unknown"),
        "Name=cg-x-4-1.0\n",
    ]
    path.write_bytes("".join(forged).encode() + b"\xff\n" + line(1, "cg-x-0-1.0").encode())
    assert [(entry.name, entry.nodes, entry.end_s - entry.start_s) for entry in ours.log()] == [
        ("cg-x-0-1.0", (0,), 60.0)
    ]


def test_the_log_is_that_of_sacct_where_slurm_keeps_no_file():
    slurm = PrintedSlurm({"n0": 4, "n1": 4})
    ours = backend(slurm)
    ours.submit("cg-x-0-1.0", Part((0,), 2))
    # Accounting is switched off.
    assert ours.log() is None
    lines = [
        "1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|n0|cg-x-0-1.0",
        "7|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:09:00|n1|cg-x-0-1.0",
        "8|CANCELLED by 0|2026-01-01T00:00:00|2026-01-01T00:02:00|n1|cg-x-3-1.0",
        "9|RUNNING|2026-01-01T00:00:00|Unknown|n1|cg-x-4-1.0",
        "10|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:02:00|n1|cg-y-0-1.0",
        "11|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:02:00|n1|a|b",
    ]
    slurm.before["sacct"] = lambda words: ("\n".join([*lines, ""]), "", 0)
    found = [(entry.name, entry.state, entry.nodes, entry.end_s - entry.start_s) for entry in ours.log()]
    assert found == [("cg-x-0-1.0", "COMPLETED", (0,), 60.0), ("cg-x-3-1.0", "CANCELLED", (1,), 120.0)]


def test_a_node_outside_the_partition_of_a_team_is_named(slurm):
    # n0 is in both partitions, and the default one of the run, "gpu", has n1 as well: "long" has not.
    shown = "n0|gpu*|8|x|gpu:4\nn1|gpu*|8|x|gpu:4\nn0|long|8|x|gpu:4\n"
    slurm.before = dict.fromkeys(
        ("salloc", "sbatch", "scancel", "scontrol", "squeue"), lambda words: ("", "", 0)
    )
    slurm.before["sinfo"] = lambda words: (shown, "", 0)
    options = LiveOptions(engine="slurm", partitions={"vision": "long"}, nodes=("n0",))
    assert choose_words(slurm, small_cluster({"X": (1, 4)}), options).nodes == ("n0",)
    with pytest.raises(InputError, match=r"live\.partitions\.vision: node n1 is not in partition 'long'"):
        choose_words(slurm, small_cluster({"X": (2, 4)}), replace(options, nodes=("n0", "n1")))


def test_teams_have_accounts_and_partitions():
    options = LiveOptions(
        engine="slurm",
        partition="gpu",
        arguments=("-q", "normal"),
        accounts={"vision": "lab-a"},
        partitions={"vision": "long"},
    )
    words = SlurmWords(
        ["n0"], "gpu", True, options.arguments, [options.team_words(t) for t in ("vision", "x")]
    )
    asked = words.submit("cg-x-0-1.0", Part((0,), 2))
    assert asked[-8:] == ["-p", "gpu", "-q", "normal", "-A", "lab-a", "-p", "long"]
    for name in ("cg-x-1-3.0", "cg-x-p1-1.0"):
        assert words.submit(name, Part((0,), 2))[-4:] == ["-p", "gpu", "-q", "normal"]
