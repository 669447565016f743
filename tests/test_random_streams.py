"""Named random streams: no two draw the same numbers, and the legacy ones draw what they always did."""

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clustergym.common import random_streams
from clustergym.common.random_streams import COINCIDING, FIXED, STREAMS, RandomStream

ROOT = Path(__file__).resolve().parent.parent
HOME = "clustergym/common/random_streams.py"

FORBIDDEN = {
    *("default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"),
    *("SystemRandom",),
}
"""What makes a generator of NumPy or of Python."""
GLOBAL = {
    *("seed", "random", "rand", "randn", "randint", "choice", "shuffle", "permutation", "normal", "uniform"),
}
"""Functions of `numpy.random` that draw from one generator of the whole process."""


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` of an attribute, else nothing."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def generators_made(tree: ast.AST) -> list[int]:
    """Return the lines that make a generator, draw from a global one, or import Python's `random`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names):
            found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module == "random" or (node.module == "numpy.random" and names - {"Generator"}):
                found.append(node.lineno)
        elif isinstance(node, ast.Call):
            *before, last = dotted(node.func).split(".")
            of_numpy = before[-1:] == ["random"] and before[:1] in (["np"], ["numpy"])
            if last in FORBIDDEN or (of_numpy and last in {"Generator", *GLOBAL}):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("folder", ["clustergym", "policies"])
def test_nobody_else_makes_a_generator(folder):
    files = {str(path.relative_to(ROOT)): path for path in (ROOT / folder).rglob("*.py")}
    assert len(files) > 20
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    made = {name: generators_made(ast.parse(text)) for name, text in texts.items() if "andom" in text}
    if folder == "clustergym":
        assert made.pop(HOME)
    assert {name: lines for name, lines in made.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "np.random.default_rng([seed, 3])",
        "from numpy.random import default_rng as rng",
        "numpy.random.RandomState(3)",
        "np.random.Generator(bits)",
        "np.random.seed(0)",
        "np.random.rand(3)",
        "import random",
        "from random import Random",
    ],
)
def test_the_check_finds_them(line):
    assert generators_made(ast.parse(line)) == [1]


def test_the_check_lets_types_and_draws_through():
    fine = "def f(rng: np.random.Generator) -> float:\n    return rng.random() + rng.normal()\n"
    assert generators_made(ast.parse(fine)) == []


def test_names_are_unique():
    assert len({stream.name for stream in STREAMS}) == len(STREAMS) > 50


def first_words(stream: RandomStream, seed: int, *indices: int) -> tuple[int, ...]:
    """Return what a generator's state is made of; equal for equal streams alone, but for 1 in 2**128."""
    return tuple(stream.seed_sequence(seed, *indices).generate_state(4, np.uint32).tolist())


SEEDED = [stream for stream in STREAMS if stream not in FIXED]
SEEDS = st.one_of(st.integers(0, 50), st.integers(0, 2**32 - 1), st.integers(2**32, 2**40))
INDICES = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 2**20 - 1)), min_size=3, max_size=3)


@given(seed=SEEDS, first=INDICES, second=INDICES)
@example(seed=0, first=[0, 0, 0], second=[0, 0, 0])
@example(seed=7, first=[1, 0, 0], second=[0, 1, 0])
def test_no_two_streams_of_a_seed_are_equal(seed, first, second):
    asked = {
        (stream.name, *indices[: stream.indices])
        for stream in SEEDED
        if stream not in COINCIDING
        for indices in (first, second)
    }
    by_name = {stream.name: stream for stream in STREAMS}
    drawn = {first_words(by_name[name], seed, *indices) for name, *indices in asked}
    assert len(drawn) == len(asked)


@given(seed=SEEDS, indices=INDICES)
def test_streams_of_today_are_unlike_legacy_ones(seed, indices):
    today = {first_words(s, seed, *indices[: s.indices]) for s in STREAMS if s.words is None}
    legacy = {first_words(s, seed, *indices[: s.indices]) for s in STREAMS if s.words is not None}
    assert not today & legacy
    assert tuple(np.random.SeedSequence(seed).generate_state(4).tolist()) not in today


def test_only_these_legacy_streams_coincide():
    assert {stream.name for stream in COINCIDING} == {
        *("training episodes", "sharing requests"),
        *("placement states", "placement choices", "placement scale states"),
    }
    assert all(stream.words is not None for stream in COINCIDING)
    same = (
        random_streams.TRAINING_EPISODES.generator(5).random(),
        random_streams.SHARING_REQUESTS.generator(5).random(),
    )
    assert same[0] == same[1]


LEGACY = {
    "policy": [1],
    "placer": [2],
    "node failures": [3, "i"],
    "leaf failures": [4, "i"],
    "minipod failures": [5, "i"],
    "offending nodes": [6, "i"],
    "failure causes": [7, "i"],
    "slow nodes": [8, "i"],
    "job failures": [9, "i"],
    "hourly arrivals": [101, "i"],
    "arrivals within hours": [102, "i"],
    "arrivals": [103],
    "arrival hours": [104],
    "tenant bursts": [105],
    "job sizes": [110],
    "virtual clusters": [111],
    "job requests": [112],
    "durations": [120, "i"],
    "GPU types": [130],
    "deadline slacks": [140],
    "jobs of parts": [0x9A27],
    "models": [51],
    "outcomes": [52],
    "asked durations": [53],
    "time limits": [54],
    "training episodes": [],
    "sharing requests": [],
    "placement states": ["i", "i"],
    "placement choices": ["i", "i", "i"],
    "placement scale states": ["i", "i", "i"],
    "training windows": [611, "i", "i"],
    "evolution": [613],
    "training segments": [614, "i"],
    "comparison": [617],
    "random episodes": [17],
    "ratio bootstrap": [281],
    "calibration halves": [3],
    "Gavel jobs": [7],
    "submission jitter": [],
    "queue priorities": [],
}
"""What stood between the brackets of `default_rng([seed, …])` for each; "i": an index."""


def test_every_legacy_stream_is_listed():
    assert {stream.name for stream in STREAMS if stream.words is not None} == set(LEGACY)


@pytest.mark.parametrize("name", LEGACY)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**40), indices=INDICES)
def test_legacy_streams_draw_what_they_drew(name, seed, indices):
    stream = next(stream for stream in STREAMS if stream.name == name)
    left = iter(indices)
    words = [next(left) if word == "i" else word for word in LEGACY[name]]
    before = np.random.default_rng([seed, *words]).random(3)
    mine = stream.generator(seed, *indices[: stream.indices]).random(3)
    assert mine.tolist() == before.tolist()


@pytest.mark.processes
def test_todays_streams_are_the_same_in_every_process():
    code = (
        "from clustergym.common import random_streams as r;"
        "three = r.RandomStream('fullness states', 3).generator(5, 1, 2, 3);"
        "print(r.RANDOM_FIT.generator(5).random(), three.random())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert [float(word) for word in found.stdout.split()] == [0.6266361246635452, 0.027551633021616118]


def test_indices_do_not_run_into_each_other():
    stream = random_streams.RandomStream("fullness states", 3)
    keys = list(itertools.product((0, 1, 11, 2**32), repeat=3))
    assert len({first_words(stream, 0, *key) for key in keys}) == len(keys)
    with pytest.raises(TypeError, match="takes 3 indices, not 2"):
        stream.generator(0, 1, 2)


def test_requests_and_their_random_fit_are_of_two_streams(monkeypatch):
    """`default_rng(seed)` drew the requests of a comparison, `default_rng([seed, 0])` where they go."""
    pytest.importorskip("numba", reason="pip install 'clustergym[learn]'")
    from clustergym.bench import sharing as comparison

    seeded, made = [], np.random.default_rng

    def default_rng(seed):
        rng = made(seed)
        seeded.append(tuple(rng.bit_generator.seed_seq.generate_state(4).tolist()))
        return rng

    monkeypatch.setattr(np.random, "default_rng", default_rng)
    options = comparison.SharingOptions(nodes=4, data=None, workloads=(), streams=2, checkpoint="sharing")
    [(_, seeds, streams)] = comparison._groups(options)
    for seed, stream in zip(seeds, streams, strict=True):
        comparison._filled(stream, "random-fit", seed)
    assert len(seeded) == len(set(seeded)) == 4
