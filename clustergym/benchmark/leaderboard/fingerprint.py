"""Fingerprints that tell whether a figure of a table is still what a run would give.

A policy's is of the files that decide, by its imports, as text without comments and docstrings. The
simulator's is
of what it does in small probe runs: as a text it would change with each commit, and every row would be stale.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cells import shorten_keys
from clustergym.benchmark.leaderboard.entry import PROGRAM
from clustergym.benchmark.leaderboard.sealed_entry import SealedAgent
from clustergym.common.paths import PACKAGE
from clustergym.scenario.placement_problem import ALGORITHMS
from clustergym.scenario.policy import Decision, InformationClass, Policy, View
from clustergym.scenario.registry import list_parameters, make_placer, make_policy, parse_policy
from clustergym.sim.program import read_program

DECIDING = tuple(f"clustergym.{one}" for one in ("policies", "agents", "operators", "scenario.queue_book"))
"""Packages and modules whose files decide for a policy that imports them; the probes see what it is given."""
SOLVERS = {"pyscipopt": "pyscipopt", "highspy": "highspy", "scipy.optimize": "scipy", "scipy": "scipy"}
"""Distributions by the module that a policy's files import."""
LENGTH = 12


def fingerprint_policy(policy: Mapping[str, Any], placer: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """Return the fingerprint of what decides for a policy, and the versions of the solvers it may call.

    Parameters
    ----------
    policy : mapping
        Its name and parameters. All parameters count, those left out with their defaults, and the
        bytes of weights.
    placer : mapping, optional
        So too, where a row names one; what the board's own does is seen in the simulator's fingerprint.
    """
    files = dict[str, str]()
    imported = set[str]()
    words, weights = list[str](), list[str]()
    for made in (make_policy(policy), *([make_placer(placer)] if placer else ())):
        parameters = {name: str(value) for name, value in list_parameters(made).items()}
        # Options may be decided by a file that the class names, as backfill is for FCFS.
        names = [type(made).__module__, *(getattr(made, "with_options", None) or "").split()]
        # The policy that a policy's parameters name, as those of quotas do.
        inner = [parse_policy(parameters["within"], "within")] if "within" in parameters else []
        # The algorithm that a placer's parameters name.
        names.append(ALGORITHMS.get(parameters.get("algorithm", ""), "").partition(":")[0])
        for name in filter(None, [*names, *(type(one).__module__ for one in inner)]):
            _read_closure(name, files, imported)
        words.append(shorten_keys(parameters))
        weights += hash_weights(parameters)
        weights += (found for one in inner for found in hash_weights(list_parameters(one)))
    versions = {SOLVERS[name] for name in imported if name in SOLVERS}
    installed = [name for name in sorted(versions) if any(metadata.distributions(name=name))]
    solvers = " ".join(f"{name}={metadata.version(name)}" for name in installed)
    words += [f"{name} {digest}" for name, digest in sorted(files.items())]
    return _hash([*words, *weights]), solvers


def fingerprint_agent(agent: SealedAgent) -> str:
    """Return the fingerprint of a sealed entry: of its artefact and value, and of our policies it imports."""
    files, of_program = dict[str, str](), agent.file.name == PROGRAM
    text = read_program(agent.file) if of_program else "import clustergym.policies.learned"
    try:
        for name in _list_imports(ast.parse(text), ""):
            _read_closure(name, files, set())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # It does not load in its own process either.
    return _hash([*agent.keys.values(), *(f"{name} {digest}" for name, digest in sorted(files.items()))])


def hash_weights(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield the hashes of weights that a parameter names, as a file or as a checkpoint of this package."""
    name = parameters.get("checkpoint")
    if name is None:
        return
    found = [Path(name), *PACKAGE.glob(f"agents/**/{name}.*")]
    for path in sorted(path for path in found if path.is_file()):
        yield hashlib.sha256(path.read_bytes()).hexdigest()


def _read_closure(module: str, files: dict[str, str], imported: set[str]) -> None:
    """Add a module's hash, and those of what it imports of `DECIDING`, to `files`; others to `imported`."""
    if module in files or not module.startswith(DECIDING):
        imported.add(module)
        return
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return
    package = module if spec.submodule_search_locations else module.rpartition(".")[0]
    files[module], names = _scan(_read_source(Path(spec.origin)), package)
    for name in names:
        _read_closure(name, files, imported)


@cache
def _scan(source: str, package: str) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a program without comments, and what it imports; policies share many files."""
    digest = hashlib.sha256(strip_comments(source).encode()).hexdigest()
    return digest, tuple(_list_imports(ast.parse(source), package))


def _read_source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _list_imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the modules that a file imports anywhere but for type checking, under their whole names."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            stack += node.orelse
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            name = ".".join(filter(None, (base, node.module)))
            yield name
            # `from package import module` names a module where there is one.
            yield from (inner for alias in node.names if _is_module(inner := f"{name}.{alias.name}"))
        else:
            stack += ast.iter_child_nodes(node)


@cache
def _is_module(name: str) -> bool:
    try:
        return name.startswith(DECIDING) and importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a name of a module, not of a package
        return False


def strip_comments(source: str) -> str:
    """Return a program's text without comments, docstrings, blank lines and spaces at the end of lines."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            assert node.end_lineno is not None
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


@dataclass
class ProbePolicy(Policy):
    """A policy that starts, stops, moves and resizes jobs in turns: it makes a simulator do all that it can.

    It belongs to the fingerprint, and is no policy of the registry: a change there would make every row
    stale.
    """

    name: ClassVar[str] = "probe"
    information_class: ClassVar[InformationClass] = InformationClass.PROFILED
    round_s: float | None = 300.0
    _turn: int = 0

    def schedule(self, view: View) -> Decision:
        """Give waiting jobs and each fourth running one another allotment, in turns the fastest."""
        self._turn += 1
        counts, free = view.setting.counts, view.available.copy()
        kept = (view.gpus > 0) & (((view.job + self._turn) % 4 != 0) | (view.standstill_s > 0))
        held = np.flatnonzero(kept)
        np.subtract.at(free, view.gpu_type[held], view.gpus[held])
        chosen = [(int(view.job[at]), int(view.gpu_type[at]), int(view.gpus[at])) for at in held]
        for at in np.roll(np.flatnonzero(~kept), -self._turn).tolist():
            options = np.argwhere(view.feasible[at] & (counts <= free[:, None]))
            if not len(options):
                continue
            time_s = view.iteration_time_s()[at][options[:, 0], options[:, 1]]
            fastest = int(np.where(np.isfinite(time_s), time_s, np.inf).argmin())
            place = fastest if self._turn % 2 else int(view.job[at] + self._turn) % len(options)
            gpu_type, level = options[place].tolist()
            free[gpu_type] -= counts[level]
            chosen.append((int(view.job[at]), gpu_type, int(counts[level])))
        return Decision.of(chosen)


def fingerprint_simulator(board: Board, scenarios: Mapping[str, Sequence[str]], probe: Sequence[str]) -> str:
    """Return the fingerprint of what the simulator does on a board: digests of a probe run in each scenario.

    Parameters
    ----------
    board : Board
    scenarios : mapping of str to sequence of str
        More overrides by scenario.
    probe : sequence of str
        Overrides that leave a few jobs.
    """
    from clustergym.results.measured_run import simulate

    digests = []
    for name, overrides in scenarios.items():
        scenario = board.scenario(Cell(name, 0), [*overrides, *probe])
        # Where nodes are divided, only some policies can give parts of GPUs.
        sharing, placer = board.contestants({"name": "srtf"})
        policy = ProbePolicy() if scenario.parts is None else sharing
        digests.append(simulate(scenario, policy, placer, 0).digest)
    return _hash(digests)


def _hash(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:LENGTH]
