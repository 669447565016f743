"""Every YAML in conf/ composes, and runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from clustergym.common.paths import conf_dir
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.models.shape_files import load_accelerator, load_transformer
from clustergym.oracle.oracle_config import oracle_from_config
from clustergym.oracle.stacks.catalog import stack_names
from clustergym.results.report.wandb_logger import read_logger_choice
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import (
    default_parameters,
    entry_points,
    find_class,
    list_parameters,
    make_placer,
    make_policy,
)
from clustergym.scenario.scenario_config import build_scenario, make_cluster
from clustergym.scenario.tenants.queue_tree import of_type
from clustergym.sim.drive import simulate

SMALL_CLUSTERS = ("arena-a", "ares-16", "ares-64", "gavel-48", "sia-64")
HORIZON = "horizon_s=7200"


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def content(group: str, name: str) -> dict[str, Any]:
    return yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8"))


WITH_DEADLINES = ["trace=philly-like", "trace.jobs=40", "trace.load=0.5", "trace.deadlines=true"]
"""So that a policy that is nothing without deadlines runs as well."""


def built_in_policies() -> set[str]:
    points = entry_points("policy").items()
    return {name for name, target in points if target.startswith("clustergym.")}


def run_short(overrides: list[str], policy: str = "fcfs") -> dict[str, Any]:
    """Run the first two hours of a configuration, in which something happens; return the configuration."""
    config = compose([*overrides, f"policy={policy}", HORIZON])
    run = simulate(build_scenario(config), make_policy(config["policy"]), make_placer(config["placer"]))
    assert run.simulation.log.events
    return config


def test_every_folder_of_conf_is_tested_here():
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    tested = (
        "agent capacity cluster costs experiment failures generator hardware hydra logger model oracle "
        "placer policy queues scenario stack sweep task trace transformer"
    )
    assert groups == set(tested.split())


def test_queues_of_the_world_llm_2026_cover_it():
    words = ["scenario=llm-2026", "scenario.queues=llm-2026", "trace.jobs=60", "trace.load=null"]
    scenario = build_scenario(compose(words))
    tree = scenario.tenants.tree
    quotas = [tree.queues[leaf].quota for leaf in tree.leaves]
    assert {name: sum(of_type(quota, name) for quota in quotas) for name in scenario.cluster.gpu_types} == {
        "H100": 1024,
        "GB200": 576,
    }


@pytest.mark.parametrize("name", sorted(set(names("queues")) - {"llm-2026"}))
def test_queues_are_of_a_cluster(name):
    gpus = next((int(word) for word in name.split("-") if word.isdigit()), 64)
    words = ["scenario=ares", "trace=philly-like", "trace.rule=ares", f"scenario.queues={name}"]
    scenario = build_scenario(compose([*words, f"cluster=ares-{gpus}"]))
    tree = scenario.tenants.tree
    assert sum(of_type(tree.queues[leaf].quota, "") for leaf in tree.leaves) == gpus
    assert scenario.cluster.capacity.sum() == gpus


@pytest.mark.parametrize("name", names("capacity"))
def test_capacity(name):
    assert run_short(["scenario=ares", "cluster=ares-16", f"capacity={name}"], "renting")["scenario"][
        "capacity"
    ]


@pytest.mark.parametrize("name", names("logger"))
def test_loggers_are_what_they_are_called(name):
    if name == "wandb":
        pytest.importorskip("wandb", reason="pip install 'clustergym[wandb]'")
    assert read_logger_choice(compose([f"logger={name}"])).name == name


@pytest.mark.parametrize("name", names("policy"))
def test_policy(name):
    needs_queues = find_class("policy", content("policy", name)["name"]).needs_queues
    queues = ["scenario.queues=virtual_cluster"] * needs_queues
    queues += ["scenario=ares", "trace.rule=ares", "cluster=ares-16", "capacity=cloud"] * (name == "renting")
    config = run_short([*WITH_DEADLINES, *queues], name)["policy"]
    # The YAML states every parameter: of a policy at the default that the class has, of a preset
    # (a file that is not named as its policy) at least one at another value.
    default = default_parameters("policy", config["name"], config.keys() - {"name"})
    if name == "learned":  # One default of its class is older than the agent that the name alone loads.
        assert default["checkpoint"] == "elastic"
        default["checkpoint"] = "profiled-clusters"
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in config.items()}
    assert given.keys() == default.keys()
    assert (given == default) is (name in built_in_policies())
    # Python's policy of this name is the command line's.
    alone = make_policy({"name": name})
    assert {"name": alone.name, **list_parameters(alone)} == given


@pytest.mark.parametrize("name", names("agent"))
def test_agent(name):
    from clustergym.scenario.configuration.hydra_edge import compose_config
    from clustergym.training.agents import make_agent

    agent = make_agent(compose_config("train", [f"agent={name}"])["agent"])
    assert (agent.name, agent) == (name, make_agent({"name": name}))


@pytest.mark.parametrize("name", names("placer"))
def test_placer(name):
    config = run_short([f"placer={name}", "trace=philly-like-244"])["placer"]
    default = default_parameters("placer", config["name"])
    assert config.keys() == default.keys()
    # A preset (a file that is not named as its placer) may have the defaults.
    assert config == default or name != config["name"]


def test_every_built_in_policy_and_placer_has_a_yaml():
    assert built_in_policies() <= set(names("policy"))
    assert {content("policy", name)["name"] for name in names("policy")} == built_in_policies()
    assert set(entry_points("placer")) <= set(names("placer"))
    assert {content("placer", name)["name"] for name in names("placer")} == set(entry_points("placer"))


@pytest.mark.parametrize("name", [name for name in names("task") if name != "rack-told"])
def test_task(name):
    from clustergym.training.program_task import evaluate_program, load_task

    program = conf_dir().parent / "examples" / "program_srtf.py"
    for mode in ("train", "test"):
        found = evaluate_program(program, load_task(name), mode, traces=1)
        assert found["status"] == "success"
        assert 0.1 < found["combined_score"] < 10.0


@pytest.mark.parametrize("name", [name for name in names("scenario") if name != "own-log"])
def test_scenario(name):
    shared = name == "sharing"
    run_short([f"scenario={name}", *["trace.jobs=100"] * shared], "fcfs" if shared else "arena")


def test_scenario_of_an_own_log(tmp_path):
    (tmp_path / "log.csv").write_text(
        "submit_time,duration,gpus,outcome\n0,600,3,completed\n60,1200,8,failed\n"
    )
    (tmp_path / "mine.yaml").write_text("nodes: [{gpu_type: A40, count: 1, gpus_per_node: 8}]\n")
    words = [f"cluster.path={tmp_path / 'mine.yaml'}", f"trace.path={tmp_path / 'log.csv'}"]
    config = compose(["scenario=own-log", *words, "policy=fcfs", "costs.restart_s=30"])
    scenario = build_scenario(config)
    # Counts and durations are the log's, the first launch costs nothing, and a restart what is stated.
    assert scenario.request_gpus.tolist() == [3, 8]
    assert scenario.trace.work_iterations.tolist() == [600, 1200]
    assert (set(scenario.checkpoint_s.tolist()), config["placer"]) == ({30.0}, {"name": "slurm"})
    run = simulate(scenario, make_policy(config["policy"]), make_placer(config["placer"]))
    ends = [event.time_s for event in run.simulation.log.events if event.event_type == "complete"]
    assert ends == [600.0, 1800.0]


@pytest.mark.parametrize("name", [name for name in names("cluster") if name not in ("file", "openb-like")])
def test_cluster(name):
    load = "trace.load=0.5" if name in SMALL_CLUSTERS else "trace.load=0.05"
    rule = "trace.rule=ares" if name.startswith("ares") else "trace.rule=arena"
    trace = ["trace=philly-like", "trace.jobs=40", load, rule, "scenario.oversize=drop"]
    assert make_cluster(run_short([f"cluster={name}", *trace])["cluster"]).name == name


def test_cluster_of_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nnodes: [{gpu_type: A40, count: 4, gpus_per_node: 2}]\n")
    cluster = make_cluster(compose(["cluster=file", f"cluster.path={path}"])["cluster"])
    assert (cluster.name, cluster.capacity.tolist()) == ("mine", [8])


@pytest.mark.parametrize("name", [name for name in names("trace") if name != "file"])
def test_trace(name):
    ares = "160" in name or "newtrace" in name
    own = {"openb-like": "sharing", "llm-2026": "llm-2026"}
    scenario = own.get(name, "ares" if ares else "testbed")
    run_short([f"scenario={scenario}", f"trace={name}"])


def test_trace_of_a_file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus\na,0,gpt3,760M,128,10,2\n"
    )
    assert build_scenario(run_short(["trace=file", f"trace.path={path}"])).trace.job_id == ("a",)


@pytest.mark.parametrize("name", names("failures"))
def test_failures(name):
    run_short([f"failures={name}", "scenario.failures.rate_scale=500"])


@pytest.mark.parametrize("name", names("costs"))
def test_costs(name):
    run_short([f"costs={name}"], "arena")


def test_oracles(tmp_path, monkeypatch):
    assert names("oracle") == ["grid", "recorded", "roofline", "sia", "stack", "table"]
    monkeypatch.setenv("CLUSTERGYM_CACHE", str(tmp_path / "cache"))
    run_short(["oracle=stack"], "arena")
    run_short(["oracle=grid"], "arena")
    run_short(["oracle=roofline"])
    path = tmp_path / "measured.csv"
    path.write_text(
        "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,iteration_time_s\n"
        "gpt3,760M,128,A40,1,1,8.0\n"
    )
    config = run_short(["oracle=table", f"oracle.path={path}", "oracle.missing=estimate"])
    assert oracle_from_config(config["oracle"]).name == "table"


@pytest.mark.parametrize("name", names("model"))
def test_model(name):
    catalog = load_catalog()
    for size in catalog.sizes(name):
        spec = catalog.get(ModelClass(name, size, 64))
        assert spec.parameters > 0
        assert spec.dtype in ("fp16", "fp32")


def test_hardware_and_generators_are_read():
    assert names("hardware") == ["accelerators", "gpus"]
    assert names("stack") == stack_names()
    assert load_accelerator("H100").source
    assert load_transformer("llama3-8B").parameters > 8e9
    assert names("generator") == ["helios", "newtrace", "pai", "philly"]
    assert Path(conf_dir() / "config.yaml").is_file()


@pytest.mark.parametrize(
    "name", [f"{group}={name}" for group in ("sweep", "experiment") for name in names(group)]
)
def test_sweep(name):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from clustergym.scenario.configuration.sweeps import total_runs

    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="pip install 'clustergym[sweep]'")
    hydra = content(*name.split("="))["hydra"]
    assert hydra["sweep"]["dir"] == f"multirun/{name.partition('=')[2]}"
    params = hydra["sweeper"]["params"]
    assert total_runs(params, []) >= 2
    given = [f"{key}={value}" for key, value in params.items()]
    lists = [OverridesParser.create().parse_override(one) for one in given]
    # Every value composes, or is a file that another test composes; the first of each list runs.
    values = [[f"{one.key_or_group}={v}" for v in one.sweep_string_iterator()] for one in lists]
    for swept in values:
        for value in swept:
            group, _, chosen = value.partition("=")
            if (conf_dir() / group).is_dir():
                assert chosen in names(group)
            elif group == "seed":
                assert int(chosen) >= 0
            else:
                make_policy(compose([name, value])["policy"])
    config = compose([name, *(swept[0] for swept in values), HORIZON])
    run = simulate(build_scenario(config), make_policy(config["policy"]), make_placer(config["placer"]))
    assert run.simulation.log.events


def test_generated_traces_are_the_same_for_all_oracles() -> None:
    # Timed by the roofline oracle (`trace/draw.py`), so that a trace's digest does not hang on a stack's fit.
    words = ["scenario=testbed", "trace=philly-like", "trace.jobs=30"]
    stack, roofline = (
        build_scenario(compose([*words, f"oracle={name}"])).trace for name in ("stack", "roofline")
    )
    assert stack.sha256 == roofline.sha256
