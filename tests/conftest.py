"""What `pytest` runs, and what several folders of tests need: the wheel, and pages in a real browser."""

import functools
import gc
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import hypothesis
import pytest

from clustergym.common.errors import InputError
from clustergym.common.processes import cores

CHROMIUM = Path("/usr/bin/chromium")
ROOT = Path(__file__).parent.parent

# The same examples in every run: what fails has failed because of a change. DRAW=anew draws others.
hypothesis.settings.register_profile("same", derandomize=os.environ.get("DRAW") != "anew")
hypothesis.settings.load_profile("same")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Run `-n auto` on the cores that the tests may use, not on all that the machine shows."""
    return cores()


MARKS = {
    "agreement": ("sim/compiled", "sim/test_plain_simulation.py", "sim/test_state_machine.py"),
    "benchmarks": ("benchmarks",),
    "boards": ("benchmark/leaderboard",),
    "compiled": (
        "agents/test_beliefs.py",
        "agents/test_lookahead.py",
        "envs/test_capacity.py",
        "envs/test_compiled_views.py",
        "envs/test_copies.py",
        "envs/test_drive.py",
        "envs/test_failures.py",
        "envs/test_no_leaks.py",
        "envs/test_other_libraries.py",
        "envs/test_scheduling.py",
        "envs/test_scheduling_golden.py",
        "envs/test_scheduling_gymnasium.py",
        "envs/test_sharing.py",
        "envs/test_tenants_env.py",
        "envs/test_tenants_parallel.py",
        "envs/vector",
        "results/bounds/test_certificates.py",
        "results/metrics/test_scenarios_without_bounds.py",
        "sim/compiled",
        "sim/test_decisions_apart.py",
        "training",
    ),
    "docs": (
        "test_docs.py",
        "test_journeys.py",
        "test_labs.py",
        "test_notebooks.py",
        "test_pictures.py",
        "test_readme.py",
        "test_results_table.py",
    ),
    "house": (
        "commands/test_arguments.py",
        "sim/test_components.py",
        "test_architecture.py",
        "test_budget.py",
        "test_drawings.py",
        "test_error_lines.py",
        "test_glossary.py",
        "test_listings.py",
        "test_marks.py",
        "test_metrics_page.py",
        "test_printed_texts.py",
        "test_random_streams.py",
        "test_release.py",
    ),
    "nightly": (),
    "operators": ("operators",),
    "papers": ("papers",),
    "processes": ("commands/test_sweeps.py",),
    "slow": (
        "benchmark/study/test_study.py",
        "commands/test_run_command.py",
        "scenario/test_conf.py",
        "scenario/test_overrides.py",
        "test_golden.py",
    ),
    "slurm": ("operators/live/test_own_slurm.py", "operators/live/test_slurm.py"),
    "timed": (),
    "training": (
        "envs/test_recipes.py",
        "envs/test_torchrl_example.py",
        "test_measure_training.py",
        "training",
    ),
}
"""Files and folders whose tests have a mark. Others carry one, or get that of a fixture: browser, wheel."""
EXTRAS = {
    "matplotlib": "report",
    "numba": "learn",
    "pyarrow": "columns",
    "stable_baselines3": "rl",
    "torch": "rl",
}
"""Packages that the core's tests can do without, and the extra that has each."""
CORE = " and ".join(f"not {mark}" for mark in (*MARKS, "browser", "hypothesis", "wheel"))


@functools.cache
def marks_of(path):
    """Return the marks that all tests of a file or folder have."""
    within = path.relative_to(ROOT / "tests")
    return [mark for mark, places in MARKS.items() if any(within.is_relative_to(one) for one in places)]


def told_in_full(made):
    """Return an `InputError.__init__` that refuses errors without message or remedy, or a line without file.

    The message may say itself what must be, not what is, or be another error's whole line with its remedy.
    """

    def make(self, message, **told):
        made(self, message, **told)
        assert isinstance(message, str)
        assert message not in ("", "None")
        says_itself = "must be " in message or ", not " in message or message.endswith(")")
        assert told.get("remedy") or says_itself, f"{message}: what is to be done?"
        assert told.get("line") is None or told.get("file") is not None, f"{message}: a line of which file?"

    return make


def pytest_configure(config):
    """Run the core, the tests without a mark, unless the command line names files, folders or marks.

    Every error that a test provokes has to be told in full, also where the test reads only a part of it.
    """
    InputError.__init__ = told_in_full(InputError.__init__)
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = CORE


def pytest_ignore_collect(collection_path, config):
    """Leave files out that have no test of the core, whose imports take long."""
    return True if config.option.markexpr == CORE and marks_of(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests before those without the marks asked for are left out; skip those of `.ci/nightly`."""
    for item in items:
        if item.get_closest_marker("nightly") and "NIGHTLY" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="NIGHTLY=1 runs it, as .ci/nightly does"))
        for mark in (*marks_of(item.path), *{"browser", "wheel"}.intersection(item.fixturenames)):
            item.add_marker(mark)
    # PASSED names the report of an earlier run, as of .ci/run: what passed there is left out.
    if "PASSED" in os.environ:
        cases = ElementTree.parse(os.environ["PASSED"]).iter("testcase")
        passed = {(one.get("classname"), one.get("name")) for one in cases if not len(one)}
        items[:] = [one for one in items if (dotted(one.nodeid), one.name) not in passed]


def dotted(nodeid):
    """Return a test's module, as pytest's reports name it."""
    return nodeid.partition("::")[0].removesuffix(".py").replace("/", ".")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    """Skip a test that ends because a package of an extra is not installed, and name it."""
    try:
        return (yield)
    except Exception as error:
        told = lacking(error)
        if told is None:
            raise
        pytest.skip(told)


def lacking(error):
    """Return which package of which extra an error, or what it was raised from, says is not installed."""
    while error is not None:
        package = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else None
        if package in EXTRAS:
            return f"{package} is not installed: pip install 'clustergym[{EXTRAS[package]}]'"
        error = error.__cause__ or error.__context__
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Have the collector of cycles pass over what was imported: looking at it took 5 % of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout once."""
    from made_once import make_once

    pytest.importorskip("build", reason="build is not installed: pip install 'clustergym[dev]'")

    def build(folder):
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
        subprocess.run(command, check=True, capture_output=True)

    (path,) = make_once(tmp_path_factory, "wheel", build).glob("*.whl")
    return path


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.is_file():
        pytest.skip(f"{CHROMIUM} is not installed")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Open a file in a window of some width and scheme; whatever the page complains of fails the test."""
    complaints, contexts = [], []

    def open_file(path: Path, width: int = 1200, scheme: str = "light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda asked: complaints.append(asked.url) if "://" in asked.url[:8] else None)
        page.goto(path.as_uri())
        complaints[:] = [one for one in complaints if one != path.as_uri()]
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert complaints == []
