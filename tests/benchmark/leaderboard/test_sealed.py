"""The sealed list: who is let in, from what seeds are drawn, and what is said of those who are refused."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from boards import write_board
from clustergym.policies.srtf import ShortestRemainingTimeFirst
from error_lines import error_line

from clustergym.agents.auction_checkpoints import save
from clustergym.agents.checkpoints import TRAINED
from clustergym.benchmark.leaderboard import causality, sealed_entry
from clustergym.benchmark.leaderboard.board import Cell, load_board
from clustergym.benchmark.leaderboard.cells import FigureTable, Place, load_table, write_rows
from clustergym.benchmark.leaderboard.fill import drop_stale, list_missing, run_place, take_fingerprints
from clustergym.benchmark.leaderboard.pairs import compare_with_reference
from clustergym.benchmark.leaderboard.sealed_entry import record_value
from clustergym.benchmark.leaderboard.sealing import draw_sealed_seeds
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError
from clustergym.scenario.policy import Decision, InformationClass, Setting, View
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate
from clustergym.sim.program import Limits
from clustergym.trace.trace import Trace

VALUE = "9f2c5b01d4e87a33" * 4
BEACON = {
    "source": "drand, quicknet",
    "round": "round 1000",
    "announced": "2026-01-05",
    "due": "2026-01-07",
}
ENTRY = {
    "board": "small",
    "board_version": 1,
    "title": "Mine",
    "authors": ["A. Author"],
    "information_class": "clairvoyant",
    "licence": "MIT",
    "beacon": BEACON,
}
KEYS: dict[str, Any] = {
    "policies": ["srtf", "drawn"],
    "conditions": {},
    "sealed": True,
    "most": 8,
    "logged": [],
    # Arrivals over hours, so that much is decided before the last.
    "scenarios": {"philly": ["trace.load=1.0"]},
}
SRTF = "from clustergym.policies.srtf import ShortestRemainingTimeFirst\n"
HONEST = SRTF + "class Mine(ShortestRemainingTimeFirst):\n    pass\n"
IMPORTS = "from clustergym.scenario.policy import Decision\n"


def program(body: str) -> str:
    """Return a program whose function has a body."""
    return IMPORTS + "def schedule(view):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def enter(root: Path, text: str = HONEST, name: str = "mine", **claimed: Any) -> FigureTable:
    """Write a sealed entry with a program, and return the board's table."""
    folder = root / "small" / name
    folder.mkdir()
    (folder / "program.py").write_text(text)
    (folder / "entry.yaml").write_text(yaml.safe_dump(ENTRY | claimed))
    return load_table(load_board("small", root))


def weigh(root: Path, checkpoint: str = "elastic", **claimed: Any) -> Path:
    """Write a sealed entry with weights, and return its folder."""
    folder = root / "small" / "mine"
    folder.mkdir()
    for suffix in ("safetensors", "yaml"):
        shutil.copy(TRAINED / f"{checkpoint}.{suffix}", folder / f"weights.{suffix}")
    (folder / "entry.yaml").write_text(
        yaml.safe_dump(ENTRY | {"information_class": "data_parallel"} | claimed)
    )
    return folder


@cache
def scenario_of(seed: int) -> Scenario:
    """Return a scenario of the board."""
    with tempfile.TemporaryDirectory() as folder:
        return write_board(Path(folder)).board.scenario(Cell("philly", seed), ["trace.load=1.0"])


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A folder of boards, of which `small` has a sealed list."""
    write_board(tmp_path, **KEYS)
    return tmp_path


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of boards with an honest entry that was sealed, and what the command printed."""
    root = tmp_path_factory.mktemp("sealed")
    write_board(root, **KEYS)
    enter(root)
    assert (
        main(["--root", str(root), "seal", "small", "mine", "--beacon", VALUE.upper(), "--workers", "1"]) == 0
    )
    return root


def copied(sealed: Path, tmp_path: Path) -> FigureTable:
    """Return the table of a copy that a test may change."""
    shutil.copytree(sealed, tmp_path / "copy")
    return load_table(load_board("small", tmp_path / "copy"))


def seal(root: Path, *words: str) -> int:
    return main(["--root", str(root), "seal", "small", "mine", "--workers", "1", *words])


def check(root: Path) -> int:
    return main(["--root", str(root), "check", "small", "mine", "--workers", "1"])


def test_an_honest_program_has_the_figures_of_its_rule(
    sealed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = load_table(load_board("small", sealed))
    # Anyone can draw the seeds: SHA-256 of five lines, of which the last counts the seeds.
    artefact = hashlib.sha256(HONEST.encode()).hexdigest()
    words = ["small", "1", artefact, VALUE]
    hashes = [hashlib.sha256("\n".join([*words, str(at)]).encode()).digest() for at in range(8)]
    seeds = {2**32 + int.from_bytes(one[:4]) for one in hashes}
    rows = {place: row for place, row in table.rows.items() if place.condition == "sealed-mine"}
    assert {(place.policy, place.seed) for place in rows} == {(n, s) for n in ("mine", "srtf") for s in seeds}
    # The program is the reference's rule: each of its runs is the reference's, event by event.
    for seed in seeds:
        mine, other = (rows[Place(name, "philly", seed, "sealed-mine")] for name in ("mine", "srtf"))
        assert mine.digest == other.digest
    found = compare_with_reference(table, "mine").overall
    assert found is not None
    assert (found.value, found.low, found.high, found.seeds) == (1.0, 1.0, 1.0, 8)
    assert check(sealed) == 0
    printed = capsys.readouterr().out
    assert printed.count(" s drawn anew: ") == causality.DRAWS
    assert "16 drawn rows run again, equal" in printed
    # `fill` runs none of an entry's cells, and keeps its rows.
    assert {place.policy for place in list_missing(table)} == {"srtf", "drawn"}
    assert len(drop_stale(table, take_fingerprints(table)).rows) == 16


def test_the_page_has_two_lists_and_says_from_what_seeds_were_drawn(sealed: Path) -> None:
    assert main(["--root", str(sealed), "render", "small"]) == 0
    page = (sealed / "small" / "README.md").read_text()
    _, closed, opened = page.replace("## Open", "## Sealed").split("## Sealed\n")
    assert "| Mine | sealed | 1.00 [1.00, 1.00] |" in closed
    assert "| drawn | learned | - |" in closed
    assert f"drand, quicknet, round 1000 (announced on 2026-01-05, due on 2026-01-07): `{VALUE}`" in closed
    assert "sealed without a later value, by parameters and weights alone" in closed
    assert "| SRTF | simple |" in opened
    assert "The seeds are public" in opened


def test_a_forged_figure_and_a_chosen_seed_are_found(
    sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = copied(sealed, tmp_path)
    place, row = next((place, row) for place, row in table.rows.items() if place.policy == "mine")
    forged = row._replace(metrics={**row.metrics, "jct_mean": 0.9 * row.metrics["jct_mean"]})
    lucky = row._replace(place=place._replace(seed=7))
    write_rows(table.path, [*(table.rows | {place: forged}).values(), lucky])
    assert check(tmp_path / "copy") == 2
    printed = capsys.readouterr().out
    assert f"mine philly {place.seed} sealed-mine: jct_mean is {row.metrics['jct_mean']}, and " in printed
    assert "small: mine philly 7 sealed-mine: its seed was not drawn" in printed


def test_a_changed_program_or_value_leaves_no_row(sealed: Path, tmp_path: Path) -> None:
    table = copied(sealed, tmp_path)
    (table.board.folder / "mine" / "program.py").write_text(HONEST + "# Another draw.\n")
    changed = load_table(table.board)
    assert not [one for one in drop_stale(changed, take_fingerprints(changed)).rows if one.policy == "mine"]


@dataclass
class Peeking(ShortestRemainingTimeFirst):
    """A policy that lets its jobs wait where the last job of the trace comes in an odd second."""

    def check(self, trace: Trace, setting: Setting) -> None:
        self.waits = int(trace.submit_s[-1]) % 2

    def schedule(self, view: View) -> Decision:
        return Decision.of([]) if self.waits and view.now_s < 3000 else super().schedule(view)


def drawn_by(rng):
    """Return what stands for the operating system's randomness: a seeded generator's."""
    return SimpleNamespace(choice=rng.choice, randbelow=rng.randrange)


def test_who_sees_what_is_to_come_is_refused(board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_table(load_board("small", board))
    monkeypatch.setattr(causality, "secrets", drawn_by(random.Random(2)))
    assert len(list(causality.check_causality(table, "srtf"))) == causality.DRAWS
    monkeypatch.setattr(
        FigureTable, "contestants", lambda *given: (Peeking(), make_placer({"name": "buddy"}))
    )
    said = r"srtf: philly-\d, all after [\d.]+ s drawn anew: at 0.0 s it decides .+ \(it sees what comes, or"
    with pytest.raises(InputError, match=said):
        list(causality.check_causality(table, "srtf"))


def plans(table: FigureTable, careful: bool) -> str:
    """Return a program that knows by heart what srtf does on the public seeds, by the first arrival."""
    known = {}
    for cell in table.keys.least_cells:
        scenario = scenario_of(cell.seed)
        run = simulate(scenario, ShortestRemainingTimeFirst(), make_placer({"name": "buddy"}))
        plan = {change.time_s: [change.launch, change.preempt] for change in run.simulation.changes}
        trace = scenario.trace
        known[int(trace.iterations[0]), int(trace.gpus[0])] = [plan, trace.submit_s.tolist()]
    return f"""
import numpy as np
from clustergym.scenario.policy import Decision
from clustergym.policies.srtf import ShortestRemainingTimeFirst

KNOWN = {known!r}

class Mine(ShortestRemainingTimeFirst):
    plan = None
    def schedule(self, view):
        if self.plan is None:
            self.plan = KNOWN.get((int(view.iterations[0]), int(view.requested_gpus[0])), ({{}}, []))
        plan, submit_s = self.plan
        here = [float(submit_s[job]) if job < len(submit_s) else None for job in view.job.tolist()]
        if not plan or ({careful} and here != view.submit_s.tolist()):
            return super().schedule(view)
        launch, preempt = plan.get(view.now_s, ((), ()))
        held = {{int(j): (int(j), t, g) for j, t, g in zip(view.job, view.gpu_type, view.gpus) if g}}
        held |= {{job: (job, t, g) for job, t, g in launch}}
        return Decision.of([one for job, one in held.items() if job not in preempt])
"""


def test_a_plan_known_by_heart_is_refused_where_it_names_jobs_that_do_not_come(
    board: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(board, plans(load_table(load_board("small", board)), careful=False))
    monkeypatch.setattr(causality, "secrets", drawn_by(random.Random(4)))
    assert seal(board, "--beacon", VALUE) == 2
    line = error_line(capsys)
    assert re.search(r"mine: philly-4, all after [0-9.,]+ s drawn anew: decision, job philly-\d+: ", line), (
        line
    )
    assert VALUE not in (board / "small" / "mine" / "entry.yaml").read_text()


def test_a_careful_plan_gains_nothing_on_seeds_that_nobody_knew(board: Path) -> None:
    table = enter(board, plans(load_table(load_board("small", board)), careful=True))
    for seed in (1, 2**32 + 5):
        scenario = scenario_of(seed)
        assert table.play("mine", scenario, seed).digest == table.play("srtf", scenario, seed).digest


REFUSED = {
    "the trace's generator": (
        program("from clustergym.trace.generators import philly"),
        "PermissionError: a program may not open",
    ),
    "a board": (
        program("from clustergym.benchmark.leaderboard.board import load_board"),
        "PermissionError: a program may not open",
    ),
    "a file": (program("open('/etc/passwd')"), "PermissionError: a program may not open '/etc/passwd'"),
    "what is not there": (program("return view.trace.seed"), "AttributeError"),
    "an illegal action": (program("return Decision.of([(0, 0, 3)])"), "decision, job"),
    "a crash": (program("raise SystemExit(3)"), "SystemExit"),
    "no action": (program("return Decision.of([])"), "starts"),
    "a loop in a decision": (program("while True: pass"), "used more than 0.2 s of CPU time for a decision"),
    "no policy": ("x = 1\n", "has 0 subclasses of Policy"),
    "another class": (
        SRTF + "class Mine(ShortestRemainingTimeFirst):\n    information_class = 'none'\n",
        "entry.yaml: information_class: is not none, as the agent's",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_is_refused(name: str, board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, expected = REFUSED[name]
    monkeypatch.setattr(sealed_entry, "LIMITS", Limits(cpu_s=20, memory_mb=4096, decision_cpu_s=0.2))
    table = enter(board, text)
    with pytest.raises(InputError) as error:
        causality.list_actions(table, "mine", scenario_of(1), 1, "mine: philly-1")
    assert str(error.value).startswith("mine: philly-1: ")
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_the_reason_stands_in_the_row(board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_entry, "LIMITS", Limits(cpu_s=20, memory_mb=4096, decision_cpu_s=0.2))
    # What it says of itself must not make the table unreadable.
    noise = (
        program("raise RuntimeError('\\x1b[31m \\u202e, \\x00')"),
        r"line 3: RuntimeError: \x1b[31m \u202e, \x00",
    )
    for text, reason in (REFUSED["a loop in a decision"], REFUSED["an illegal action"], noise):
        table = enter(board, text, beacon=BEACON | {"value": VALUE})
        row = run_place(table, take_fingerprints(table), Place("mine", "philly", 1, "sealed-mine"))
        assert row.metrics["jct_mean"] is None
        assert reason.replace("decision, job", "has 3 GPUs") in row.stopped
        write_rows(table.path, [row])
        assert table.reread().rows[row.place].stopped == row.stopped
        shutil.rmtree(board / "small" / "mine")


def test_weights_decide_as_the_policy_of_this_project_does(board: Path) -> None:
    weigh(board)
    table = load_table(load_board("small", board))
    scenario = table.board.scenario(Cell("philly", 1))
    with table.agents["mine"].start() as agent:
        found = simulate(scenario, agent, make_placer({"name": "buddy"})).simulation.log.digest
    policy, placer = table.board.contestants({"name": "learned", "checkpoint": "elastic"})
    assert found == simulate(scenario, policy, placer).simulation.log.digest
    assert table.agents["mine"].sha256 == hashlib.sha256((TRAINED / "elastic.yaml").read_bytes()).hexdigest()


def described(folder: Path, **changes: object) -> None:
    """Change keys of weights.yaml."""
    path = folder / "weights.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def as_weights(folder: Path, data: bytes) -> None:
    """Write other weights, and their digest."""
    (folder / "weights.safetensors").write_bytes(data)
    described(folder, sha256=hashlib.sha256(data).hexdigest())


def undefined(folder: Path) -> None:
    save(folder / "weights.safetensors", np.full(60, np.nan), InformationClass.DATA_PARALLEL, {})


WEIGHTS: dict[str, tuple[Any, str]] = {
    "a pickle": (lambda f: as_weights(f, b"\x80\x04cos\nsystem\n."), "is not a safetensors file"),
    "a network": (
        lambda f: described(f, schema="clustergym.network/1"),
        "schema: is not a checkpoint of this schema",
    ),
    "other bytes": (
        lambda f: (f / "weights.safetensors").write_bytes(b"x"),
        "is not the file its YAML describes",
    ),
    "other features": (lambda f: described(f, features=["a"]), "features: are not this version's"),
    "no description": (lambda f: (f / "weights.yaml").unlink(), "No such file"),
    "a further file": (lambda f: (f / "model.pt").write_bytes(b"x"), "model.pt: does not belong in an entry"),
    "a program too": (lambda f: (f / "program.py").write_text(HONEST), "does not belong in an entry"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_in_another_form(name: str, board: Path) -> None:
    change, expected = WEIGHTS[name]
    change(weigh(board))
    with pytest.raises(InputError) as error:
        load_table(load_board("small", board)).agents["mine"].start()
    assert expected in str(error.value)


VALUES: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "none yet": (
        {},
        None,
        "mine: the value is not known yet (give --beacon, that of drand, quicknet, round 1000, on ",
    ),
    "before its day": (
        {"beacon": BEACON | {"due": "2099-01-07"}},
        VALUE,
        "beacon.value: nobody can know the value before 2099-01-07",
    ),
    "due when it was announced": (
        {"beacon": BEACON | {"due": "2026-01-05"}},
        None,
        "beacon.due: 2026-01-05 is not later than 2026-01-05",
    ),
    "no day": ({"beacon": BEACON | {"due": "soon"}}, None, "beacon.due"),
    "another value": (
        {"beacon": BEACON | {"value": VALUE}},
        VALUE[::-1],
        "beacon.value: '" + VALUE[::-1] + "' is not the value there",
    ),
    "words": ({}, "a lucky day", "beacon.value"),
    "a title of another": (
        {"title": "srtf"},
        None,
        "title: its name is too long, or it or its title is as another row's",
    ),
    "another version": ({"board_version": 2}, None, "board_version: is of small version 2"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_refused(name: str, board: Path) -> None:
    claimed, value, expected = VALUES[name]
    with pytest.raises(InputError) as error:  # noqa: PT012
        table = enter(board, **claimed)
        if value is not None:
            record_value(table.agents["mine"], value)
        draw_sealed_seeds(table, "mine")
    assert expected in str(error.value)


def test_a_row_has_no_later_value_and_an_open_board_no_agents(
    board: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(board), "seal", "small", "drawn", "--beacon", VALUE]) == 2
    assert "unknown sealed entry 'drawn'" in error_line(capsys)
    write_board(board, **KEYS | {"sealed": False})
    with pytest.raises(InputError, match="this board has no sealed list"):
        enter(board)
