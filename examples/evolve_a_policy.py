"""Evolve a policy in a file: change what is between its marks, score as `clustergym evaluate`, keep the best.

python examples/evolve_a_policy.py --cpu-s 500 --out outputs/evolved
python examples/evolve_a_policy.py --by openevolve --programs 20 --out outputs/openevolve

The first search mutates numbers and terms. The second is OpenEvolve's (pip install openevolve), whose
language model is here a stand-in that answers with such a mutation, without a network. Neither sees the
traces of mode test. Other searches call `evaluate` of this file, on the task that $CLUSTERGYM_TASK names.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import sys
import tempfile
from pathlib import Path

from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.writing import write_text
from clustergym.sim.program import read_program
from clustergym.training.program_task import evaluate_program, load_task

SEED_PROGRAM = Path(__file__).resolve().with_name("program_to_evolve.py")
BLOCK = re.compile(r"(?s)(# EVOLVE-BLOCK-START\n)(.*?)(# EVOLVE-BLOCK-END)")
SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
KEPT = 4
TASK = "CLUSTERGYM_TASK"
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "evolved"
version = "0.1.0"

[project.entry-points."clustergym.policies"]
evolved = "evolved:Evolved"

[tool.setuptools]
py-modules = ["evolved"]
"""


def mutate(text: str, rng: random.Random) -> str:
    """Return a program with one to three changes in its functions between the marks."""
    block = ast.parse(BLOCK.search(text)[2])
    for _ in range(rng.randint(1, 3)):
        function = rng.choice([one for one in block.body if isinstance(one, ast.FunctionDef)])
        names = [one.arg for one in function.args.args]
        Change(names, rng).apply(function.body[-1])
    lines = "\n\n\n".join(ast.unparse(one) for one in block.body)
    return BLOCK.sub(lambda found: f"{found[1]}{lines}\n\n\n{found[3]}", text)


class Change(ast.NodeTransformer):
    """Changes one part of a formula: a number, a name, or a term that comes or goes."""

    def __init__(self, names: list[str], rng: random.Random) -> None:
        self.names, self.rng, self.chosen = names, rng, None

    def apply(self, answer: ast.Return) -> None:
        """Change the formula of a `return`."""
        parts = [one for one in ast.walk(answer.value) if isinstance(one, ast.expr)]
        self.chosen = self.rng.choice(parts)
        answer.value = self.visit(answer.value)

    def visit(self, node: ast.AST) -> ast.AST:
        """Return what stands in the place of a part."""
        if node is not self.chosen:
            return self.generic_visit(node)
        rng = self.rng
        if isinstance(node, ast.Constant) and rng.random() < 0.7:
            return ast.Constant(float(f"{node.value * 2 ** rng.gauss(0, 1):.3g}"))
        if isinstance(node, ast.BinOp) and rng.random() < 0.5:
            return rng.choice([node.left, node.right])
        if isinstance(node, ast.Name) and rng.random() < 0.3:
            return self.leaf()
        return ast.BinOp(node, rng.choice(SIGNS)(), self.leaf())

    def leaf(self) -> ast.expr:
        """Return a number, an argument, or an argument to a power."""
        number = ast.Constant(float(f"{2 ** self.rng.gauss(0, 2):.3g}"))
        name = ast.Name(self.rng.choice(self.names))
        power = ast.BinOp(name, ast.Pow(), ast.Constant(self.rng.choice([-1.0, 0.5, 2.0])))
        return self.rng.choice([number, name, power, ast.BinOp(number, ast.Mult(), name)])


def evaluate(program_path: str, traces: int | None = None):
    """Evaluate a program on the traces of mode train, as searches of programs ask.

    Returns what `clustergym evaluate` prints as JSON; in OpenEvolve its EvaluationResult, in which the
    artifacts are texts that its prompts show.
    """
    outcome = evaluate_program(Path(program_path), load_task(os.environ.get(TASK, "elastic")), traces=traces)
    if "openevolve" not in sys.modules:
        return outcome
    from openevolve.evaluation_result import EvaluationResult

    texts = {name: json.dumps(value, indent=1) for name, value in outcome["artifacts"].items()}
    return EvaluationResult(metrics=outcome["metrics"], artifacts=texts)


def search(seed_text: str, cpu_s: float, programs: int, rng: random.Random, out: Path) -> str:
    """Return the best program found in CPU seconds and a number of programs; each better one is written."""
    began_s, seen = used_cpu_s(), {seed_text}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "candidate.py"

        def score(text: str, traces: int | None = None) -> float:
            file.write_text(text, encoding="utf-8")
            return evaluate(str(file), traces)["combined_score"]

        best = [(score(seed_text), seed_text)]
        print(f"seed: combined_score {best[0][0]:.4f}", flush=True)
        for number in range(1, programs + 1):
            if used_cpu_s() - began_s > cpu_s:
                break
            text = mutate(rng.choice(best)[1], rng)
            # What is bad on two traces is not tried on all.
            if text in seen or score(text, 2) < 0.97 * best[0][0]:
                continue
            seen.add(text)
            found = score(text)
            if found > best[0][0]:
                spent_s = used_cpu_s() - began_s
                print(f"program {number}: {found:.4f} after {spent_s:.0f} CPU-s", flush=True)
                write_program(out, text)
            best = sorted([*best, (found, text)], reverse=True)[:KEPT]
    return best[0][1]


class StandIn:
    """Answers as a language model would: with the current program of the prompt, mutated."""

    def __init__(self, config) -> None:
        self.model, self.rng = config.name, random.Random(config.random_seed)

    async def generate(self, prompt: str, **kwargs) -> str:
        """Return an answer to a prompt."""
        return await self.generate_with_context("", [{"role": "user", "content": prompt}])

    async def generate_with_context(self, system_message: str, messages: list, **kwargs) -> str:
        """Return the last program of the messages, mutated."""
        programs = re.findall(r"(?s)```python\n(.*?)```", messages[-1]["content"])
        current = [one for one in programs if BLOCK.search(one)]
        return f"```python\n{mutate(current[-1], self.rng)}```"


def search_by_openevolve(seed_file: Path, programs: int, seed: int, out: Path) -> str:
    """Return the best program that OpenEvolve finds."""
    try:
        from openevolve import run_evolution
        from openevolve.config import Config, LLMModelConfig
    except ImportError as error:
        raise InputError("is needed", field="openevolve", remedy="pip install openevolve") from error
    config = Config(
        max_iterations=programs, diff_based_evolution=False, random_seed=seed, log_level="WARNING"
    )
    config.llm.models = [LLMModelConfig(name="stand-in", init_client=StandIn, random_seed=seed)]
    config.llm.evaluator_models = config.llm.models
    config.evaluator.parallel_evaluations, config.evaluator.cascade_evaluation = 1, False
    result = run_evolution(
        str(seed_file), __file__, config, output_dir=str(out / "openevolve"), cleanup=False
    )
    print(f"best of {programs} programs: combined_score {result.best_score:.4f}", flush=True)
    return result.best_code


def write_program(out: Path, text: str) -> None:
    """Write a program as a package that `pip install` makes `policy=evolved`."""
    write_text(out / "evolved.py", text, "--out")
    write_text(out / "pyproject.toml", PROJECT, "--out")


def used_cpu_s() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--by", choices=["mutation", "openevolve"], default="mutation")
    parser.add_argument("--cpu-s", type=float, default=500.0, help="CPU seconds of the mutation search")
    parser.add_argument("--programs", type=int, default=1000, help="most programs that are tried")
    parser.add_argument("--program", type=Path, default=SEED_PROGRAM, help="to begin with; it has the marks")
    parser.add_argument("--task", default="elastic", help="of conf/task, or a YAML file (default: elastic)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/evolved"), help="folder of the best program"
    )
    given = parser.parse_args(argv)
    # Where processes that OpenEvolve starts find it.
    os.environ[TASK] = given.task
    text = read_program(given.program)
    if not BLOCK.search(text):
        raise InputError("has no marks", file=given.program, remedy="write # EVOLVE-BLOCK-START and -END")
    if given.by == "openevolve":
        text = search_by_openevolve(given.program, given.programs, given.seed, given.out)
    else:
        text = search(text, given.cpu_s, given.programs, random.Random(given.seed), given.out)
    write_program(given.out, text)
    print(f"wrote {given.out}/evolved.py; {used_cpu_s():.0f} CPU-s\n{BLOCK.search(text)[2].strip()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
