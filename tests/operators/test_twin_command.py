"""What each `clustergym twin` command hands on, prints and writes; stand-ins do the work."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clustergym.operators.commands.twin import main
from clustergym.operators.twin import advice, ahead, folder, page, whatif
from clustergym.operators.twin.figures import Prices
from clustergym.operators.twin.page import Section
from clustergym.operators.twin.whatif import Question
from refusals import Said, refused

from clustergym.trace import present

NOON = 1_772_539_200.0
"""2026-03-03T12:00:00, in seconds since 1970."""


@dataclass
class Rules:
    """What is read of a scheduler's configuration."""

    queues: dict[str, Any]
    policy: dict[str, Any]
    guessed: Counter[str] = field(default_factory=Counter)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have a twin without files; return what was asked for."""
    calls: dict[str, Any] = {}
    monkeypatch.setattr(folder, "TwinFolder", lambda path: SimpleNamespace(path=path, log="the log"))
    here = SimpleNamespace(now_s=NOON, running=["1"], waiting=["2", "3"])

    def read(path: Path, now: str | None) -> Any:
        calls["queue"] = (path, now)
        return here

    def look(twin: Any, given: Any, policy: str | None, words: list[str]) -> Any:
        calls["ahead"] = (twin.path, given is here, policy, list(words))
        return SimpleNamespace(
            present=here, config={"policy": {"name": "srtf"}}, now=lambda: calls.get("moment")
        )

    monkeypatch.setattr(present, "read_queue", read)
    monkeypatch.setattr(ahead, "Ahead", look)
    return calls


def test_eta(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    row = {"job_id": "2", "user": "al", "team": "a", "gpus": 8, "gpu_type": "A100"}
    rows = [row | {"p10_s": 0.4, "p50_s": 3600.0, "p90_s": None}]

    def estimate(its: Any, draws: int, seed: int) -> list[dict[str, Any]]:
        asked["estimate"] = (draws, seed)
        return rows

    monkeypatch.setattr(advice, "estimate_starts", estimate)
    file = tmp_path / "eta.json"
    words = ["twin", "queue.txt", "--now", "12:00", "seed=1", "--policy", "fcfs", "--json", str(file)]
    assert main(["eta", *words]) == 0
    assert asked["queue"] == (Path("queue.txt"), "12:00")
    assert asked["ahead"] == (Path("twin"), True, "fcfs", ["seed=1"])
    assert asked["estimate"] == (49, 0)
    assert capsys.readouterr().out.splitlines() == [
        "| job | user | team | GPUs | type | 10 % | 50 % | 90 % |",
        "| --- | --- | --- | ---: | --- | ---: | ---: | ---: |",
        "| 2 | al | a | 8 | A100 | 2026-03-03T12:00:00 | 2026-03-03T13:00:00 | later |",
        "1 jobs run, 2 wait at 2026-03-03T12:00:00; 49 draws of run times",
    ]
    assert json.loads(file.read_text()) == {
        "schema": "clustergym.twin-eta/1", "now": "2026-03-03T12:00:00", "running": 1, "waiting": 2,
        "jobs": rows,
    }  # fmt: skip
    assert main(["eta", "twin", "queue.txt", "--draws", "1", "--seed", "3"]) == 0
    assert asked["estimate"] == (1, 3)
    capsys.readouterr()
    assert main(["eta", "twin", "queue.txt", "--draws", "0"]) == 2
    assert capsys.readouterr().err == "error: --draws: 0 is not valid (give more than 0)\n"


def test_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    queues = {"queues": {f"q{at}": {} for at in range(9)}}
    made = Rules(queues, {"name": "kueue"}, Counter({"quotas": 1200, "nothing": 0}))
    calls: list[Any] = []

    def read(*given: Any) -> Rules:
        calls.append(given)
        return made

    def write(output: Path, queues: Any, policy: Any, source: str) -> list[Path]:
        calls.append((output, source))
        return [output / "queues.yaml", output / "policy.yaml"]

    monkeypatch.setattr(folder, "read_rules", read)
    monkeypatch.setattr(folder, "write_rules", write)
    file = tmp_path / "rules.json"
    words = ["rules", "a/config.txt", "b/assoc.txt", "-o", str(tmp_path), "--by", "user", "--json", str(file)]
    assert main(words) == 0
    assert calls == [
        ([Path("a/config.txt"), Path("b/assoc.txt")], "user", False, None),
        (tmp_path, "config.txt, assoc.txt"),
    ]  # fmt: skip
    wrote = [f"wrote    {tmp_path / 'queues.yaml'}", f"wrote    {tmp_path / 'policy.yaml'}"]
    assert capsys.readouterr().out.splitlines() == [
        *wrote, "policy   kueue; 9 queues: q0, q1, q2, q3, q4, q5, q6, q7 …", "guessed  1,200 quotas"
    ]  # fmt: skip
    found = json.loads(file.read_text())
    assert (found["written"], found["queues"], found["policy"]) == (
        [line.removeprefix("wrote    ") for line in wrote], queues, {"name": "kueue"}
    )  # fmt: skip
    del queues["queues"]["q8"]
    assert main(["rules", "a", "-o", str(tmp_path), "--fair-sharing"]) == 0
    assert calls[2] == ([Path("a")], "account", True, None)
    assert "8 queues: q0, q1, q2, q3, q4, q5, q6, q7\n" in capsys.readouterr().out
    for name in ("queues.yaml", "policy.yaml"):
        (tmp_path / name).write_text("")
        assert main(["rules", "a", "-o", str(tmp_path)]) == 2
        remedy = "exists already (choose another name, or --force)"
        assert capsys.readouterr().err == f"error: {tmp_path / name}: --output: {remedy}\n"
        assert main(["rules", "a", "-o", str(tmp_path), "--force"]) == 0
        (tmp_path / name).unlink()
        capsys.readouterr()


def test_whatif(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    calls: list[Any] = []

    def ask(twin: Any, question: Question, prices: Prices, out: Path, hydra: list[str]) -> dict[str, Any]:
        calls.append((twin.path, question, prices, out, hydra))
        return {"jobs": [900, 1200], "runs": 8, "finished_before": 3}

    monkeypatch.setattr(whatif, "ask", ask)
    monkeypatch.setattr(
        page, "list_sections", lambda figures: [Section("In short", ["", "today"], [["wait", "1"]])]
    )
    out, file = tmp_path / "asked", tmp_path / "asked.json"
    words = ["whatif", "twin", "seed=1", "hydra/launcher=joblib", "--policy", "fcfs", "--policy", "srtf"]
    words += [
        "--add",
        "8xA100",
        "--quota",
        "a=b=8",
        "--limit",
        "c=9999999",
        "--days",
        "0.5",
        "--resamples",
        "1",
    ]
    words += [
        "--price",
        "2",
        "--watts",
        "A100=400/60",
        "--carbon",
        "300",
        "--plans",
        "plans.yaml",
        "--out",
        str(out),
        "--json",
        str(file),
    ]
    assert main(words) == 0
    question = Question(("fcfs", "srtf"), ("8xA100",), {"a=b": 8.0}, {"c": 9999999.0}, 0.5, 1, ("seed=1",))
    question = replace(question, plans=Path("plans.yaml"))
    prices = Prices(2.0, {"A100": (400.0, 60.0)}, (300.0,))
    assert calls == [(Path("twin"), question, prices, out, ["hydra/launcher=joblib"])]
    assert capsys.readouterr().out.splitlines() == [
        "|  | today |",
        "| --- | ---: |",
        "| wait | 1 |",
        "8 runs, 3 finished before",
        f"wrote {out}/whatif.md, {out}/whatif.html; study: {out}/study.yaml, runs: {out}/runs",
    ]
    command = f"clustergym twin {' '.join(words)}"
    assert json.loads(file.read_text()) == {
        "jobs": [900, 1200], "runs": 8, "finished_before": 3, "command": command
    }  # fmt: skip
    written = (out / "whatif.md").read_text().splitlines()
    assert written[:5] == [
        "# What if",
        "",
        "1 drawn periods of 0.5 days, 900 to 1,200 jobs: weeks of the log (of one of less than eight, days by"
        " weekday). In brackets the 95 % interval over them; of a ratio the least and greatest without one of"
        " them.",
        "",
        f"Made by: {command}",
    ]
    assert "<h1>What if</h1>" in (out / "whatif.html").read_text()
    # Without --out the page lies in the folder of the twin.
    monkeypatch.chdir(tmp_path)
    assert (
        main(["whatif", "twin", "--policy", "fcfs", "--carbon", ",".join(["1"] * 24), "--watts", "X=1/0"])
        == 0
    )
    default = Question(("fcfs",), (), {}, {}, 30.0, 5, ())
    assert calls[1] == (
        Path("twin"),
        default,
        Prices(None, {"X": (1.0, 0.0)}, (1.0,) * 24),
        Path("twin/whatif"),
        [],
    )
    assert Path("twin/whatif/whatif.md").is_file()


@refused("twin-questions", words=True)
def test_questions_that_cannot_be_asked(given: list[str], said: Said, capsys: Any) -> None:
    assert main(["whatif", "twin", *given]) == 2
    said.check(capsys.readouterr().err)


def test_watts_at_a_power_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    table = tmp_path / "power.csv"
    head = "network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
    table.write_text(head + "a,8,sgd,300,10,290\na,8,sgd,200,12.5,195.6\n")
    calls: list[Any] = []
    asked = {"jobs": [1], "runs": 1, "finished_before": 0}
    monkeypatch.setattr(whatif, "ask", lambda twin, question, prices, *rest: calls.append(prices) or asked)
    monkeypatch.setattr(page, "list_sections", lambda figures: [Section("", [""], [])])
    words = ["whatif", "twin", "--policy", "fcfs", "--watts", f"X={table}@200/50", "--out", str(tmp_path)]
    assert main(words) == 0
    assert calls == [Prices(None, {"X": (195.6, 50.0)}, ())]
    assert capsys.readouterr().out.splitlines()[0] == (
        "X at a limit of 200 W takes 196 W by 1 networks, epochs 1.25 times as long as at the highest limit;"
        " run times stay those of the log"
    )


def test_commands_that_are_none(capsys: Any) -> None:
    assert main([]) == 2
    assert main(["fitt"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        "error: no command given (give one of rules, fit, whatif, eta, advise, admit, score)"
    )
