"""Capacity plans of a what-if question: waits, late jobs and costs by hand, and what is refused."""

import json

import pytest
from clustergym.operators.commands.twin import main
from clustergym.operators.twin.plans import read_plans
from clustergym.operators.twin.whatif import differences
from refusals import refused

from clustergym.cluster.cluster_files import load_cluster

PLANS = """
reserved:
  products:
    node: {nodes: 1, price: 2.0}
contract:
  products:
    half-day: {nodes: 1, price: 1.0, lead_s: 5400, term_s: 21600}
spot:
  products:
    spot: {nodes: 1, notice_s: 120}
  path: spot.csv
reactive:
  products:
    dear: {nodes: 1, price: 5.0}
    on-demand: {nodes: 1, price: 3.0}
  rule: reactive
  ahead: [0, 0, 0]
  at_once: [-8, 0, 1, 0]
"""
SPOT = "time_s,product,usd_per_gpu_hour,nodes\n0,spot,1,1\n7200,spot,2,0\n14400,spot,2,1\n"


@pytest.fixture
def folder(tmp_path):
    """A twin of 8 GPUs, and plans for it. Both days of its log are alike, so that all drawn periods are.

    At 0:00 `a` has all GPUs for 240 min, at 0:50 `b` wants them for 110, in the last second `c` wants one.
    """
    head = "job_id,submit_time,duration,gpus,gpu_type,user,virtual_cluster,outcome"
    jobs = [("a", "00:00:00", 14_400, 8), ("b", "00:50:00", 6600, 8), ("c", "23:59:59", 1, 1)]
    rows = [
        f"{name}{day},2026-03-0{day}T{at},{run_s},{gpus},A100,al,lab,completed"
        for day in (2, 3)
        for name, at, run_s, gpus in jobs
    ]
    (tmp_path / "log.csv").write_text("\n".join([head, *rows]) + "\n")
    (tmp_path / "cluster.yaml").write_text(
        "name: mine\nnodes:\n- {gpu_type: A100, count: 1, gpus_per_node: 8}\n"
    )
    (tmp_path / "policy.yaml").write_text("name: fcfs\n")
    (tmp_path / "plans.yaml").write_text(PLANS)
    (tmp_path / "spot.csv").write_text(SPOT)
    return tmp_path


def ask(folder, *words):
    out = folder / "figures.json"
    where = ["--plans", str(folder / "plans.yaml"), "--days", "2", "--out", str(folder / "out")]
    assert main(["whatif", str(folder), *where, "--json", str(out), *words]) == 0
    return json.loads(out.read_text())


def mean_of(figures, key):
    return {label: option[key]["mean"] for label, option in figures["options"].items()}


def test_plans_by_hand(folder, capsys):
    figures = ask(folder, "--resamples", "3", "--price", "1")
    # Of a day's three jobs b alone waits: 190 min today, until a ends, so that it takes 300 and is late, not
    # done within twice its 110. On the reserved node it starts at once. The contract is ordered at 0:00 and,
    # as it has ended, at 7:30, and so on: it comes at 1:30 on the first day, and is there from 0:00 to 6:00
    # on the second, so that b waits 40 min once in six jobs. The spot node is taken away at 2:00, until 4:00:
    # on the first day b started at once, stands for 2 h and is late after 230 min. The reactive rule sees at
    # 1:00 that more than the own 8 GPUs are asked for, rents the cheaper node, and gives it back at 3:00,
    # when b has ended: b waits 10 min.
    minutes = {
        label: option["waits"]["all"]["all jobs"]["mean_s"]["mean"] / 60
        for label, option in figures["options"].items()
    }
    assert minutes == pytest.approx(
        {"today": 190 / 3, "reserved": 0.0, "contract": 40 / 6, "spot": 0.0, "reactive": 10 / 3}, abs=1e-6
    )
    assert mean_of(figures, "late_jobs") == {
        "today": 2, "reserved": 0, "contract": 0, "spot": 1, "reactive": 0
    }  # fmt: skip
    # A run lasts 48 h, until c ends. A node of 8 GPUs for all of it at 2 USD; seven terms, ordered at 0:00
    # and every 7.5 h, of 6 h at 1 USD; spot for 2 h at 1 USD and from 4:00 on at 2; 2 h a day at 3 USD.
    rent = {
        "today": 0.0,
        "reserved": 8 * 48 * 2.0,
        "contract": 7 * 8 * 6 * 1.0,
        "spot": 8 * (2 * 1.0 + 44 * 2.0),
        "reactive": 2 * 8 * 2 * 3.0,
    }
    assert mean_of(figures, "rent") == pytest.approx(rent)
    costs = {label: option["cost"]["all"]["mean"] for label, option in figures["options"].items()}
    assert costs == pytest.approx({label: 8 * 48 * 1.0 + its for label, its in rent.items()})
    # GPUs are idle only while they are there: all hours are the 384 of one's own and 32 of the rented.
    hours = figures["options"]["reactive"]["goodput_gpu_hours"]
    assert sum(cell["mean"] for cell in hours.values()) == pytest.approx(8 * 48 + 32)
    assert hours["productive"]["mean"] == pytest.approx(2 * 8 * (240 + 110) / 60 + 2 / 3600)
    # All periods are alike: so are the ends of the intervals.
    less_s = 60 * (40 / 6 - 190 / 3)
    assert figures["differences"]["contract"]["wait_s"] == pytest.approx(
        {"mean": less_s, "periods": 3, "low": less_s, "high": less_s}
    )
    printed = capsys.readouterr().out
    row = "| cost less today's | - | +768.0 [+768.0, +768.0] (n = 3) | +336.0 [+336.0, +336.0] (n = 3) |"
    assert row in printed
    assert "| rent | 0 | 768 | 336 | 720 | 96 |" in printed


def test_plans_beside_other_rules_on_the_same_jobs(folder, capsys):
    (folder / "plans.yaml").write_text(PLANS.split("contract:")[0])
    figures = ask(folder, "--resamples", "1", "--policy", "sjf")
    assert list(figures["options"]) == ["today", "sjf", "reserved", "reserved, sjf"]
    assert figures["differences"]["reserved, sjf"]["wait_s"] == pytest.approx({"mean": -3800.0, "periods": 1})
    assert "| late jobs less today's | - | +0.0 (n = 1) |" in capsys.readouterr().out
    ask(folder, "--resamples", "1", "--policy", "sjf")
    assert "4 runs, 4 finished before" in capsys.readouterr().out


def test_work_that_is_left_is_what_time_limits_leave(folder):
    log = (folder / "log.csv").read_text().splitlines()
    limits = {"a": ",28800", "j": ",time_limit_s"}
    (folder / "log.csv").write_text("".join(f"{row}{limits.get(row[0], ',')}\n" for row in log))
    # At 0:00 a's limit leaves 8 h of 8 GPUs, 4 GPU-hours more than 60: a node is ordered, which comes at
    # 0:30 for an hour. At 1:00 a leaves 56; b has no limit, and counts none.
    plan = "x: {nodes: 1, price: 1, lead_s: 1800, term_s: 3600}"
    rule = "rule: reactive\n  ahead: [-60, 1, 0]\n  at_once: [0, 0, 0, 0]"
    (folder / "plans.yaml").write_text(f"p:\n  products:\n    {plan}\n  {rule}\n")
    assert mean_of(ask(folder, "--resamples", "1"), "rent") == {"today": 0.0, "p": 2 * 8.0}


def test_differences_are_of_pairs_with_students_interval():
    def run(wait_s, late, rent):
        waits = {"all": {"all jobs": {"mean_s": wait_s}}}
        return {"waits": waits, "late_jobs": late, "rent": rent}

    today = [run(60.0, 3, 0.0), run(600.0, 5, 0.0), run(None, 0, 0.0)]
    found = differences(today, [run(50.0, 2, 10.0), run(580.0, 3, 20.0), run(3.0, 0, 30.0)])
    # A period without a wait does not count; 1, 2 and 0 jobs less; 10, 20 and 30 USD with a deviation of 10,
    # and t = 4.303 at two degrees of freedom: 20 +- 4.303 x 10 / sqrt(3).
    assert found["wait_s"] == {"mean": -15.0, "periods": 2}
    assert found["late_jobs"]["mean"] == -1.0
    assert found["cost"] == pytest.approx(
        {"mean": 20.0, "low": 20 - 24.84, "high": 20 + 24.84, "periods": 3}, abs=0.01
    )


def test_the_reactive_rule_has_the_weights_of_the_page(folder):
    (folder / "plans.yaml").write_text("p:\n  products:\n    x: {nodes: 1, price: 1}\n  rule: reactive\n")
    plan = read_plans(folder / "plans.yaml", load_cluster(str(folder / "cluster.yaml")), ())["p"]
    # In units of the size of 16 GPUs, of which 8 are one's own.
    assert plan.rule[1:3] == (
        "policy.ahead=[3.7584, 0.2673, 0.2483]",
        "policy.at_once=[-4.7696, -0.0727, 0.5728, 0.7661]",
    )


def test_several_types_of_gpu(folder, capsys):
    nodes = "- {gpu_type: A100, count: 1, gpus_per_node: 8}\n- {gpu_type: V100, count: 2, gpus_per_node: 4}\n"
    (folder / "cluster.yaml").write_text(f"name: mine\nnodes:\n{nodes}")
    plan = "p:\n  products:\n    x: {nodes: 3, price: 1, gpu_type: V100, process: {wave: 0.5}}\n"
    (folder / "plans.yaml").write_text(plan)
    found = read_plans(folder / "plans.yaml", load_cluster(str(folder / "cluster.yaml")), ())["p"]
    assert found.add == ("12xV100",)
    assert found.words == (
        '+scenario.capacity={products:{x:{nodes:3,price:1,gpu_type:"V100",process:{wave:0.5}}},'
        "path:null,billed_s:0.0,seed:null}",
    )
    assert ask(folder, "--resamples", "1")["options"]["p"]["rented_gpu_hours"]["mean"] == 12 * 48
    (folder / "plans.yaml").write_text(f"{plan}  rule: reactive\n")
    assert main(["whatif", str(folder), "--plans", str(folder / "plans.yaml")]) == 2
    told = "plans.yaml:4: p.rule: reactive rents GPUs of one type, and the cluster has 2 (leave the rule out"
    assert told in capsys.readouterr().err


@refused("twin-plans")
def test_plans_that_are_refused(given, said, folder, capsys):
    (folder / "plans.yaml").write_text(given)
    assert main(["whatif", str(folder), "--plans", str(folder / "plans.yaml")]) == 2
    said.check(capsys.readouterr().err, folder)
