"""Configurations whose files were composed once, against Hydra's own composition of each."""

import pytest
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.utils import JobRuntime, setup_globals
from hydra.errors import ConfigCompositionException, HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from clustergym.common.paths import conf_dir
from clustergym.scenario.configuration import composing
from clustergym.scenario.configuration.composing import ValuesLater, composing_once, offer
from clustergym.scenario.configuration.hydra_edge import (
    _offer_plugins,
    compose_config,
    folder_name,
    run_hydra,
)

WORDS = [
    [],
    ["policy=fcfs"],
    ["seed=3", "policy=fcfs", "horizon_s=100.5"],
    ["policy=sia", "policy.power=-1.0", "trace=philly-like", "trace.jobs=100"],
    ["policy.round_s=60", "failures=llama3", "scenario.failures.seed=4"],
    ["+policy.extra=1", "~scenario.pairs", "hydra.run.dir=/x/y", "hydra.job.name=other"],
    ["++costs.measured_s.m=3.0", "trace.jobs=[1,2]", "scenario.failures={path: f.csv}"],
    ["policy=[fcfs]"],
    ["policy=nosuch"],
    ["policy.nosuch=1"],
    ["nosuch=1"],
    ["+policy=fcfs"],
    ["seed@x=1"],
    ["sweep=seeds", "seed=1"],
]
SWEPT = [["policy=fcfs,srtf", "seed=1,2", "hydra.sweep.dir=/x"], ["policy.round_s=range(3)", "trace=file"]]


@pytest.fixture(autouse=True)
def _hydra():
    setup_globals()
    version.setbase("1.3")
    OmegaConf.register_new_resolver("clustergym.folder", folder_name, replace=True)
    _offer_plugins()
    JobRuntime().set("name", "run")
    composing._composed.clear()
    with composing_once():
        yield


def loaded(loader, words, mode):
    """Return a configuration as plain values and as YAML with its interpolations, or its error."""
    try:
        config = loader(create_config_search_path(str(conf_dir()))).load_configuration("config", words, mode)
    except (HydraException, ConfigCompositionException) as error:
        return type(error), str(error)
    return OmegaConf.to_container(config, resolve=False), OmegaConf.to_yaml(config)


@pytest.mark.parametrize(
    ("words", "mode"),
    [(words, RunMode.RUN) for words in [*WORDS, *SWEPT]] + [(words, RunMode.MULTIRUN) for words in SWEPT],
    ids=lambda given: given.name if isinstance(given, RunMode) else " ".join(given),
)
def test_a_configuration_is_the_one_that_hydra_composes(words, mode):
    expected = loaded(ConfigLoaderImpl, words, mode)
    assert loaded(ValuesLater, words, mode) == expected
    assert loaded(ValuesLater, words, mode) == expected


def test_runs_that_differ_in_values_share_the_composition_of_their_files():
    loader = ValuesLater(create_config_search_path(str(conf_dir())))
    seeds = [loader.load_configuration("config", [f"seed={seed}"], RunMode.RUN).seed for seed in range(3)]
    assert seeds == [0, 1, 2]
    assert len(composing._composed) == 1
    loader.load_configuration("config", ["policy=fcfs", "seed=1"], RunMode.RUN)
    assert len(composing._composed) == 2


def test_what_one_run_changes_in_its_configuration_the_next_does_not_see():
    loader = ValuesLater(create_config_search_path(str(conf_dir())))
    first = loader.load_configuration("config", [], RunMode.RUN)
    first.policy.name = "changed"
    assert loader.load_configuration("config", [], RunMode.RUN).policy.name == "arena"


def test_a_configuration_composed_again_reads_no_file_anew(monkeypatch):
    before = compose_config("config", ["policy=ares", "policy.alpha=0.5", "seed=1"])
    monkeypatch.setattr(
        ConfigLoaderImpl, "_load_configuration_impl", lambda *_, **__: pytest.fail("composed")
    )
    again = compose_config("config", ["policy=ares", "policy.alpha=0.25", "seed=2"])
    assert again == before | {"seed": 2, "policy": before["policy"] | {"alpha": 0.25}}


def test_what_is_offered_anew_is_composed_anew():
    offer("policy", "of-a-plugin", {"name": "of-a-plugin", "depth": 1})
    assert compose_config("train", ["+policy=of-a-plugin"])["policy"]["depth"] == 1
    offer("policy", "of-a-plugin", {"name": "of-a-plugin", "depth": 2})
    assert compose_config("train", ["+policy=of-a-plugin"])["policy"]["depth"] == 2


def test_the_files_of_a_folder_of_the_users_are_read_each_time(tmp_path, capsys):
    (tmp_path / "trace").mkdir()
    words = ["--config-dir", str(tmp_path), "--cfg", "job", "trace=own", "policy=fcfs"]
    for jobs in (17, 18):
        (tmp_path / "trace" / "own.yaml").write_text(f"source: generate\njobs: {jobs}\n")
        assert run_hydra(lambda *_: None, words, "run") == 0
        assert f"jobs: {jobs}" in capsys.readouterr().out
