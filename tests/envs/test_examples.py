"""The example and the benchmark of environments run."""

import json

import pytest
from example_files import import_file


def test_random_play_beside_an_algorithm(capsys):
    main = import_file("examples/placement_random.py").main
    given = ["--env", "ClusterGym/Placement-small-v0", "--episodes", "3", "--render"]
    assert main(given) == 0
    first = capsys.readouterr().out
    lines = first.splitlines()
    assert lines[0].startswith("episode 0: random ")
    assert "DP spread" in first
    worse, better = (
        float(lines[-1].split(name)[1].split()[0].rstrip(",")) for name in ("random ", "arnold ")
    )
    assert better <= worse
    assert main(given) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--beside", "arnolt"], "did you mean arnold"),
        (["--env", "Placement"], "env.id: unknown environment 'Placement'"),
        (["--episodes", "0"], "--episodes is at least 1"),
    ],
)
def test_mistakes_are_one_line(capsys, argv, line):
    assert import_file("examples/placement_random.py").main(argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert line in shown.err
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(("only", "number"), [("Placement", 3), ("16-v1", 6)])
def test_the_benchmark_measures_environments(only, number, tmp_path, monkeypatch, capsys):
    benchmark = import_file("benchmarks/environments.py")
    monkeypatch.setattr(benchmark, "import_s", lambda code: 0.5)
    path = tmp_path / "rates.json"
    assert benchmark.main(["--seconds", "0.01", "--only", only, "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert [row["id"] for row in rows] == [row.id for row in benchmark.ENVIRONMENTS if only in row.id]
    assert len(rows) == number
    assert all(rate > 0 for row in rows for name, rate in row.items() if name != "id")
