"""Every command and file of docs/, used as a reader would; and the site builds without a warning."""

import dataclasses
import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import gymnasium
import pytest

from clustergym import __main__ as console
from clustergym.envs.families import ElasticEnv
from clustergym.envs.observations import JOB_FEATURES, OPTION_FEATURES, QUEUE_FEATURES
from clustergym.envs.placement.drawing import PlacementParameters
from clustergym.envs.placement.environment import PlacementEnv
from clustergym.envs.racks.environment import RackEnv
from clustergym.envs.racks.gangs import RackParameters
from clustergym.envs.scheduling_costs import COSTS
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.envs.sharing.environment import SharingEnv
from clustergym.envs.sharing.parameters import SharingParameters
from clustergym.scenario.configuration.hydra_edge import compose_config
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.scenario.registry import entry_points

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NEEDS = {
    "sweeps.md": ("hydra_plugins.hydra_joblib_launcher",),
    "commands/tune.md": ("optuna",),
    "own-environment.md": ("sb3_contrib",),
    "train-an-agent.md": ("cma", "numba", "sb3_contrib"),
    "commands/train.md": ("cma", "numba"),
    "commands/cluster.md": ("matplotlib",),
    "how-to.md": ("matplotlib",),
    "commands/offline.md": ("minari", "h5py"),
    "pretraining.md": ("matplotlib",),
}
"""What a page needs that a plain installation has not."""

ELSEWHERE = {
    "clustergym bench environments --only elastic-16 --numbers 1 --seconds 0.01 --json environments.json",
    "clustergym reproduce arnold --quick --out arnold.md --json arnold.json",
}
"""Lines of pages that other tests run, on the same input or on nearly the same."""

SECTIONS = (
    *("Description", "Action Space", "Observation Space", "Rewards", "Illegal Actions", "Starting State"),
    "Episode End",
)
HOURS = r"(\d+\.\d\d) h"


def texts():
    """Return the hand-written pages by their paths."""
    return {
        path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")
    }


PAGES = sorted(name for name, text in texts().items() if "```sh\n" in text)


def told_by(line, output):
    """Check what a script of the docs prints."""
    if line == "python compare.py":
        assert re.findall(r"(\S+): mean JCT", output) == ["fcfs", "las", "smallest-first"]
    elif line == "python shortest.py":
        told = re.findall(rf"(\S+): mean JCT {HOURS}, waiting {HOURS}", output)
        assert [name for name, _, _ in told] == ["fcfs", "srtf", "shortest-first"]
        # Jobs wait, and knowing their lengths helps.
        waiting = {name: float(hours) for name, _, hours in told}
        assert waiting["fcfs"] > 0.5
        assert waiting["shortest-first"] < waiting["fcfs"]
    elif line == "python play.py":
        means = dict(re.findall(rf"^(\w+): mean JCT {HOURS}$", output, re.MULTILINE))
        assert list(means) == ["oldest", "shortest", "random"]
        assert float(means["shortest"]) < min(float(means["oldest"]), float(means["random"]))
    elif line.startswith("python learn.py"):
        assert re.fullmatch(r"after 256 steps \d+% of the jobs stay for more than an hour\n", output)
    else:
        assert line == "python reinforce.py 3"
        assert (
            len(re.findall(rf"^episode \d: [+-]{HOURS} against SRTF, mean JCT {HOURS}$", output, re.M)) == 3
        )


def run_script(line):
    """Run a script that a page wrote: in a process of its own, or in this one if it needs PyTorch.

    PyTorch takes five seconds to import and to make its first optimizer. Here the environments are registered
    already, so such a script has to import what registers them, or to name it in the environment's id.
    """
    _, name, *arguments = shlex.split(line)
    text = Path(name).read_text(encoding="utf-8")
    if re.search(r"^(?:import torch|from sb3_contrib import .*)$", text, re.MULTILINE):
        assert re.search(r"^import clustergym$|gymnasium\.make\(\"waits:", text, re.MULTILINE)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as shown:
            patch.setattr(sys, "argv", [name, *arguments])
            runpy.run_path(name, run_name="__main__")
        told_by(line, shown.getvalue())
        return
    path = os.pathsep.join([str(ROOT), str(Path.cwd())])
    command = [sys.executable, name, *arguments]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told_by(line, done.stdout)


def install(folder):
    """Let the entry points of the package in a folder be found, as `pip install -e .` does."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    importlib.invalidate_caches()
    entry_points.cache_clear()


def run_line(line):
    words = shlex.split(line)
    if words[0] == "python":
        run_script(line)
    elif line == "pip install -e .":
        install(Path.cwd())
    else:
        assert (words[0], console.main(words[1:])) == ("clustergym", 0), line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder whose modules are found, and forgotten afterwards with what they registered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    entry_points.cache_clear()
    gymnasium.registry.pop("Mine/Waits-v0", None)
    COSTS.pop("long_stays", None)


# Optuna and PyTorch warn of what of them is experimental or old.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, folder):
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install 'clustergym[dev]'")
    names: dict[str, object] = {}
    for kind, title, text in BLOCK.findall(texts()[page]):
        if title:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(text, encoding="utf-8")
        elif kind == "python":
            exec(compile(text, page, "exec"), names)
        elif kind == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                if line not in ELSEWHERE:
                    run_line(line)


def test_what_other_tests_run_is_on_a_page():
    assert {line for text in texts().values() for line in text.splitlines()} >= ELSEWHERE


def test_the_tutorials_are_among_the_pages():
    tutorials = {
        "tutorial.md",
        "own-trace-and-cluster.md",
        "own-environment.md",
        "train-an-agent.md",
        "sweeps.md",
    }
    assert tutorials < set(PAGES)


def test_every_command_has_a_page_with_an_example():
    pages = {name: text for name, text in texts().items() if name.startswith("commands/")}
    assert set(pages) == {f"commands/{name}.md" for name in [*console.COMMANDS, *console.client_commands()]}
    for name, text in pages.items():
        lines = [line for kind, _, part in BLOCK.findall(text) if kind == "sh" for line in part.splitlines()]
        assert any(line.startswith(f"clustergym {Path(name).stem} ") for line in lines), name
        assert [title in text for title in ("## What it writes", "## Exit status")] == [True, True], name


def commands_with_keys():
    """Every `clustergym run|live|train|evaluate KEY=VALUE…` that a page names, except what is run above."""
    found = set()
    for text in [*texts().values(), (ROOT / "README.md").read_text(encoding="utf-8")]:
        plain = re.sub(r"^```sh\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).replace("\\\n", " ")
        inline = re.findall(r"`(clustergym (?:run|live|train|evaluate) [^`]+)`", plain)
        lines = re.findall(r"^(?: {4})?(clustergym (?:run|live|train|evaluate) .*=.*)$", plain, re.MULTILINE)
        found |= {" ".join(line.split("  #")[0].split()) for line in [*inline, *lines]}
    return sorted(line for line in found if "=" in line and "…" not in line)


def test_the_keys_that_the_docs_name_are_accepted():
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="pip install 'clustergym[sweep]'")
    lines = commands_with_keys()
    assert len(lines) > 15
    assert any("submitit_slurm" in line for line in lines)
    for line in lines:
        command, *words = shlex.split(line)[1:]
        keys = [word for word in words if not word.startswith("-")]
        if "-m" in words:
            # Of a list of values the first one.
            keys = [word if re.search(r"=[\[{]", word) else word.split(",")[0] for word in keys]
        if command == "train":
            keys = [f"++{key}" if key.startswith("env.") else key for key in keys]
        assert compose_config({"run": "config"}.get(command, command), keys), line


def test_every_command_of_the_artifact_appendix_is_known():
    text = (DOCS / "artifact-appendix.md").read_text(encoding="utf-8")
    table = text.split("<!-- figures: appendix -->")[1].split("<!-- end -->")[0]
    commands = [shlex.split(one) for one in re.findall(r"\| `([^`]+)` \| [\d.]+ \|", table)]
    assert len(commands) >= 8
    for first, *words in commands:
        if first == "clustergym":
            assert words[0] in {**console.COMMANDS, **console.client_commands()}
        elif words[0] == "-m":
            assert importlib.util.find_spec(words[1]) is not None
            assert all((ROOT / word).exists() for word in words if word.endswith(".py"))
            if words[1] == "clustergym.run":
                assert compose_config("config", words[2:])
        else:
            assert (ROOT / words[0]).is_file()


def columns(heading, cls=ElasticEnv):
    """Return the names in the first column of a docstring's table."""
    table = cls.__doc__.split(f"| {heading} | Meaning |")[1].split("\n\n")[0]
    rows = [line.strip().strip("|").split("|")[0] for line in table.splitlines()[2:]]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


@pytest.mark.parametrize(
    ("heading", "names"), [("jobs", JOB_FEATURES), ("options", OPTION_FEATURES), ("queue", QUEUE_FEATURES)]
)
def test_the_columns_of_an_observation_are_documented(heading, names):
    assert columns(f"Column of `{heading}`") == list(names)


@pytest.mark.parametrize("cls", [ElasticEnv, PlacementEnv, RackEnv, SharingEnv])
def test_an_environment_is_documented_in_full(cls):
    titles = re.findall(r"^ *## (.+)$", cls.__doc__, re.MULTILINE)
    assert titles == [*SECTIONS, "Arguments"]


@pytest.mark.parametrize(
    "cls", [SchedulingParameters, PlacementParameters, RackParameters, SharingParameters]
)
def test_every_parameter_of_an_environment_is_described(cls, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    described = importlib.import_module("environment_pages").described(cls)
    assert list(described) == [field.name for field in dataclasses.fields(cls)]
    assert described["observation"] == (
        "dict or flat",
        "The form of an observation: a dict of arrays, or one array.",
    )


def test_the_tables_of_environments_and_of_the_python_interface_are_current(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    for name, make in importlib.import_module("reference_tables").PAGES.items():
        assert (DOCS / name).read_text(encoding="utf-8") == make(), "run `python docs/reference_tables.py`"
    named = re.findall(r"`([\w-]+-v\d)`", (DOCS / "environments/tables.md").read_text(encoding="utf-8"))
    assert sorted(f"ClusterGym/{name}" for name in named) == sorted(row.id for row in ENVIRONMENTS)


HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path):
    """Return the anchors of the headings of a Markdown file, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in HEADING.findall(text)]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def pages_of_the_repository():
    """Every Markdown page of the repository."""
    tops = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return sorted(
        [
            *tops,
            *(path for name in ("docs", "leaderboards", "traces") for path in (ROOT / name).rglob("*.md")),
        ]
    )


def test_relative_links_lead_somewhere_in_the_repository_too():
    """A page is read in a checkout or on a host of repositories as well, where no page is generated."""
    wrong, count = [], 0
    for page in pages_of_the_repository():
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            there, count = page.parent / name if name else page, count + 1
            leads = there.exists() and (not anchor or anchor in anchors(there))
            if not leads or ROOT not in there.resolve().parents:
                wrong.append(f"{page.relative_to(ROOT)} -> {target}")
    assert count > 200
    assert wrong == []


def test_the_site_links_to_the_repository_once_its_address_is_known(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    linked_pages = importlib.import_module("linked_pages")
    monkeypatch.setattr(linked_pages, "ROOT", tmp_path)
    for urls, expected in (
        ("", None),
        ('[project.urls]\nRepository = "https://example.org/it"\n', "https://example.org/it"),
    ):
        (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "it"\n{urls}')
        assert linked_pages.repository_url() == expected


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site, and what the build said."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install 'clustergym[docs]'")
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it would keep the warnings from being counted.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    return folder, subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_the_site_builds_without_a_warning(site):
    folder, done = site
    assert (done.returncode, [line for line in done.stderr.splitlines() if "WARNING" in line]) == (0, [])
    found = folder.rglob("index.html")
    pages = {path.parent.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in found}
    for page in ("policies/arena", "commands", "api", "tutorial"):
        assert len(pages[page]) > 5000
    check_environments(pages, folder)
    check_commands(pages)
    check_boards(pages)
    check_policies(pages)
    check_home(pages)
    # What lies outside of docs/ has a page of its own.
    assert 'href="../source/examples/record_video.py/"' in pages["environments"]
    assert "RecordVideo" in pages["source/examples/record_video.py"]
    assert broken_links(pages, folder) == []


def check_policies(pages):
    """Check that every policy has a page with all parts, and a place in the gallery."""
    presets = sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml"))
    assert len(presets) > 20
    for name in presets:
        assert f'{name}.svg"' in pages["policies"], name
        for title in ("How it decides", "What differs from the paper", "Where it stands", "Parameters"):
            assert f">{title}<" in pages[f"policies/{name}"], (name, title)
        decides = pages[f"policies/{name}"].split("How it decides<")[1].split("<img")[0]
        paragraphs = re.sub(r"<[^>]+>", "", decides).split("\n", 2)[2]  # without the line that names it
        assert len(re.findall(r"[a-z`).0-9]\.(?=\s+[A-Z`]|\s*$)", paragraphs)) <= 5, (name, paragraphs)


def check_home(pages):
    """Check that what a stranger asks is answered one click from the home page."""
    questions = re.findall(r'href="concepts/#([^"]+)"', pages["."])
    assert {"decision-point", "why-does-arena-wait", "may-i-compare-ares-and-sia"} <= set(questions)
    assert [one for one in questions if f'id="{one}"' not in pages["concepts"]] == []


def check_boards(pages):
    """Check that every board has a page, and that the list of boards leads to it."""
    boards = sorted(path.parent for path in (ROOT / "leaderboards").glob("*/board.yaml"))
    assert len(boards) > 4
    for board in boards:
        assert f"boards/{board.name}" in pages
        assert f'href="{board.name}/"' in pages["boards"]


def broken_links(pages, site):
    """Return the links of pages to what the site has not, as "page -> target"."""
    broken = []
    for name, page in pages.items():
        for target in re.findall(r'(?:href|src)="([^"#]+)(?:#[^"]*)?"', page):
            if re.match(r"[a-z]+:|/", target):
                continue
            path = site / name / target
            if not (path / "index.html" if target.endswith("/") or path.is_dir() else path).is_file():
                broken.append(f"{name} -> {target}")
    return broken


def check_environments(pages, site):
    """Check that every id is on one page, which has a picture and all parts."""
    families = ("elastic", "elastic-homogeneous", "fair", "deadline", "auction", "placement")
    families += ("sharing", "tenants", "burst", "priority", "knobs", "rack", "capacity")
    of_family = {name: pages[f"environments/{name}"] for name in families}
    for row in ENVIRONMENTS:
        assert sum(f"<code>{row.id}</code>" in page for page in of_family.values()) == 1, row.id
    for name, page in of_family.items():
        assert (site / "environments" / f"{name}.gif").read_bytes().startswith(b"GIF89a")
        assert f"../{name}.gif" in page
        for title in (*SECTIONS, "What is reached in it", "Arguments", "Configuration"):
            assert f">{title}<" in page, (name, title)


def check_commands(pages):
    """Check that every command shows its help and that of its subcommands."""
    for name in [*console.COMMANDS, *console.client_commands()]:
        page = pages[f"commands/{name}"]
        assert f"usage: clustergym {name} " in page, name
        assert f'href="{name}/"' in pages["commands"], name
    for subcommand in ("explain", "validate", "fit"):
        assert f"usage: clustergym oracle {subcommand} " in pages["commands/oracle"], subcommand


LOOKED_AT = {
    (1280, "light"): ("", "concepts/", "policies/", "policies/arena/", "environments/knobs/"),
    (390, "dark"): (
        "",
        "results/",
        "tutorial/",
        "boards/testbed/",
    ),
}
AXE = Path(os.environ.get("AXE", ROOT / "node_modules" / "axe-core" / "axe.min.js"))
"""`npm install axe-core`; without it the other limits are still checked."""


@pytest.mark.parametrize(("width", "scheme"), LOOKED_AT)
def test_pages_are_small_accessible_and_as_wide_as_the_window(browser, site, monkeypatch, width, scheme):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    looks = importlib.import_module("look_at_pages")
    folder, _ = site
    with looks.served(folder) as address:
        for page in LOOKED_AT[width, scheme]:
            seen = looks.look(browser, address, page, width, scheme, AXE if AXE.is_file() else None)
            assert (page, seen.size < looks.MOST_BYTES, seen.overflow, seen.serious) == (page, True, 0, [])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(address)
        page.keyboard.press("/")
        page.keyboard.type("placement")
        page.wait_for_selector(".md-search-result__item")
        page.close()
