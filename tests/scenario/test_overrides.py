"""Overrides of a run that are wrong: each ends in one line that says what to give, and nothing is written."""

import pytest
import yaml
from error_lines import error_line

import clustergym
from clustergym.commands import run
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir
from clustergym.scenario.configuration.overrides import READ_WITH_FILE, check_words

SMALL = ["cluster=arena-16", "trace=philly-like", "trace.jobs=3", "compare=null", "report=false"]

BAD = [
    (["policy.round_s=inf"], "policy.round_s: inf is not valid (give seconds from 0.001"),
    (["policy.round_s=1e308"], "policy.round_s: 1e+308 is not valid"),
    (["placer.defragment_s=inf"], "placer.defragment_s: inf is not valid"),
    (["scenario.name=null"], "scenario.name: None is not valid (give a name)"),
    (["scenario.name=[]"], "scenario.name: [] is not valid"),
    (["~policy"], "~policy: a run needs a policy (give policy=NAME)"),
    (["policy=null"], "policy: null is not a name"),
    (["oracle=1"], "oracle: 1 is not a name"),
    (["logger=3"], "logger: 3 is not a name (valid: none, wandb)"),
    (["--resolve"], "give --cfg job --resolve"),
    (["-m", "hydra.sweeper._target_=os.system"], "hydra.sweeper._target_: names code to be run"),
    (["report=3"], "report: 3 is not a bool"),
    (["table=maybe"], "table: 'maybe' is not a bool"),
    (["progress=[]"], "progress: [] is not a bool"),
    (["+foo=1"], "foo: unknown key 'foo'"),
    (["+reprot=false"], "unknown key 'reprot' (did you mean report"),
    (["policy=ares", "policy.alfa=0.5"], "policy.alfa: unknown key 'policy.alfa' (did you mean policy.alpha"),
    (["arena"], "'arena' is not key=value (did you mean policy=arena?)"),
    (["trace.load=1e300"], "load: 1e+300 is not from 0 to 1000"),
    (["trace.span_s=1e-9"], "span_s: 1e-09 is not from 0.001"),
    (["trace=my.csv"], "trace: my.csv is a file (give trace=file trace.path=my.csv)"),
    (["cluster=my.yaml"], "cluster: my.yaml is a file (give cluster=file cluster.path=my.yaml)"),
    (["oracle=my.csv"], "oracle: my.csv is a file (give oracle=table oracle.path=my.csv"),
    (["policy=my.yaml"], "policy: my.yaml is a file (give policy=NAME policy.KEY=VALUE, or put it into"),
    (
        ["failures=[rsc-1,acme]"],
        "failures: [rsc-1,acme] names several, and a run has one (give failures=NAME",
    ),
    (["policy=[fcfs,srtf]"], "policy: [fcfs,srtf] names several, and a run has one"),
    (["trace.start_hour=168"], "start_hour: 168 is not from 0 to 167"),
]


@pytest.mark.parametrize(("overrides", "expected"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_a_bad_override_is_one_line_and_writes_nothing(overrides, expected, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run.main([*SMALL, *overrides]) == 2
    assert expected in error_line(capsys)
    assert not list(tmp_path.rglob("*"))


def test_a_missing_file_is_not_answered_with_folders(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nosuch").mkdir()
    (tmp_path / "nosuch.tsv").touch()
    assert run.main(["trace=file", "trace.path=nosuch.csv", "hydra.run.dir=out"]) == 2
    assert "nosuch.csv: no such file (did you mean nosuch.tsv?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["policy=arena,fcfs", "-m"],
        ["policy=choice(arena,fcfs)"],
        ["sweep=null", "experiment=null"],
        ["policy='arena'"],
        ["--cfg", "job", "--resolve"],
        ["++policy.round_s=5", "~trace.load"],
    ],
)
def test_what_hydra_accepts_passes(words):
    check_words(words)


def test_a_function_is_never_a_way_to_run_code():
    with pytest.raises(InputError, match="names code to be run"):
        check_words(["+hydra.callbacks.mine._target_=os.system"])


def test_what_a_file_says_is_not_overridden_in_silence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("nodes: [{count: 1, gpu_type: A40, gpus_per_node: 4}]\n")
    assert (
        run.main([*SMALL[1:], "cluster.path=mine.yaml", "cluster.nodes.0.count=6", "hydra.run.dir=out"]) == 2
    )
    expected = "cluster.nodes.0.count: has no effect: mine.yaml says it (edit the file, or drop cluster.path)"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"trace.jobs: has no effect: a.csv says it"):
        clustergym.load_scenario("testbed", ["trace=philly-like", "+trace.path=a.csv", "trace.jobs=5"])


def test_every_key_of_a_trace_from_a_file_counts():
    keys = yaml.safe_load((conf_dir() / "trace" / "file.yaml").read_text())
    assert set(READ_WITH_FILE["trace"]) == set(keys)
