"""What a training logs to Weights & Biases; the network is never needed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from error_lines import error_line
from trainings import AUCTION
from wandb_log import artifacts, rows, run_of

from clustergym.commands import train as train_command
from clustergym.common.paths import install_line
from clustergym.sim.compiled import numba_cache
from clustergym.training import training

ROOT = Path(__file__).parents[2]
PPO = [
    "agent=ppo", "processes=1", "progress=false", "env.jobs=5", "env.rows=8", "env.baseline=null",
    "agent.validation=1", "agent.traces=2", "agent.n_envs=1", "agent.steps=32",
    "agent.validate_every=16", "agent.n_steps=16", "agent.batch_size=16", "agent.hidden=[4]",
]  # fmt: skip


def test_a_training_that_goes_on_tells_its_new_run_everything(tmp_path):
    pytest.importorskip("wandb", reason="pip install 'clustergym[wandb]'")
    folder = tmp_path / "t"
    line = [sys.executable, "-m", "clustergym.train", *AUCTION, "agent.episodes=30", "logger=wandb", "seed=3"]
    line.append(f"output={folder}")
    # What is compiled lies where the other tests have it; all else of the home folder is new.
    compiled = {"NUMBA_CACHE_DIR": str(numba_cache._cache_dir().parents[1])}
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), **compiled}
    with subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, cwd=tmp_path) as first:
        while not (folder / "state.json").is_file():
            assert first.poll() is None
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [*_, log] = sorted(
        (folder / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime
    )
    # The last run has all, as the checkpoint has it.
    curves = yaml.safe_load((folder / "t.yaml").read_text())["curves"]
    logged = rows(log)
    assert [row["step"] for row in logged] == [1, 2, 3, 4]
    assert [row["objective"] for row in logged] == curves["objective"]
    found = [[row["step"], row["validation"]] for row in logged if "validation" in row]
    assert found == curves["validation"]
    assert artifacts(log) == {"checkpoint": ["t.safetensors", "t.yaml"]}
    run = run_of(log)
    assert (run.run_group, run.display_name) == ("auction_es", "t-3")
    config = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert (config["seed"], config["agent"]["population"]) == (3, 6)


class Recorder:
    """In the place of a run of wandb."""

    def __init__(self, **given):
        self.given, self.id, self.rows, self.summary, self.ended = given, "new", [], {}, None

    def define_metric(self, name, step_metric):
        assert name.endswith("*")

    def log(self, row, step):
        assert step == row["step"]
        self.rows.append(row)

    def log_artifact(self, artifact):
        self.artifact = artifact

    def finish(self, exit_code):
        self.ended = exit_code


@pytest.fixture
def runs(monkeypatch):
    """The runs that trainings have begun."""
    pytest.importorskip("wandb", reason="pip install 'clustergym[wandb]'")
    begun = []

    def start(choice, config, folder, name, group):
        begun.append(Recorder(config=config, name=name, group=group))
        return begun[-1]

    monkeypatch.setattr(training, "start", start)
    return begun


def without_times(rows):
    return [{name: row[name] for name in row.keys() - {"seconds", "cpu_seconds"}} for row in rows]


def test_every_figure_of_a_network_is_logged(tmp_path, runs):
    words = [*PPO, "logger=wandb", f"output={tmp_path / 'm'}"]
    assert train_command.main(words) == 0
    curves = yaml.safe_load((tmp_path / "m" / "m.yaml").read_text())["curves"]
    [run] = runs
    # Beside the figures of each segment stands heSRPT's, which is the same for all.
    (beside,) = {row["hesrpt_jct_h"] for row in run.rows}
    logged = [{**row, "step": row["steps"], "hesrpt_jct_h": beside} for row in curves["segments"]]
    assert without_times(run.rows) == logged
    assert run.summary["best"] == curves["best"]
    assert run.given["group"] == "ppo-Priority-16-v0"
    assert run.ended == 0
    # Again: its run is told the same.
    assert train_command.main(words) == 0
    assert without_times(runs[1].rows) == without_times(run.rows)


def test_a_training_that_fails_ends_its_run_as_failed(tmp_path, runs, monkeypatch):
    def dies(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("clustergym.training.auction_evolution.objectives", dies)
    assert train_command.main([*AUCTION, "logger=wandb", f"output={tmp_path / 'a'}"]) == 130
    assert runs[0].ended == 1


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["logger=wandb"], install_line("wandb")),
        (["logger=wandb", "logger.mode=ofline"], "did you mean offline"),
        (["logger=wnadb"], "did you mean wandb"),
    ],
)
def test_mistakes_are_one_line_before_any_training(overrides, line, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert train_command.main([*AUCTION, f"output={tmp_path / 'out'}", *overrides]) == 2
    assert line in error_line(capsys)
    assert not (tmp_path / "out").exists()
