"""Reads software stacks from YAML, and chooses the one of a model on a GPU type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.models.shape import Machine, TransformerShape
from clustergym.oracle.models.shape_files import find_accelerator
from clustergym.oracle.stacks.step_time import StackConstants

FORMULAS: dict[str, type[Any]] = {"steps": StackConstants, "operators": Constants}
"""Constants by what reads them: formulas of a transformer's step, or of a plan's operators, one by one."""
DEFAULT_STACKS = {False: "fsdp-2023", True: "megatron-2026"}
"""Stack of transformers on GPU types that no stack was measured on, without and with fp8 arithmetic."""
OPERATORS_STACK = "alpa-2022"
"""Stack of models that are no transformers: the only one that has any."""
FRAMEWORKS = {"fsdp": ("fsdp",), "megatron": ("megatron", "dgxc")}
"""What the names of a training framework's stacks begin with."""
DENSE, EXPERTS = "dense", "experts"
"""Types of transformers that stacks of steps were measured on."""


@dataclass(frozen=True)
class Stack:
    """A software stack (such as a Megatron release): fitted constants, and what they were measured on.

    Attributes
    ----------
    constants : StackConstants or Constants
    fitted_to : str
        In words.
    gpu_types, models : tuple of str
        Of the measurements; a model is a family, or `DENSE` or `EXPERTS` for such transformers.
    """

    name: str
    constants: StackConstants | Constants
    fitted_to: str = ""
    gpu_types: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def of_steps(self) -> bool:
        """Whether the constants are for the time of a whole training step, not of single operators."""
        return isinstance(self.constants, StackConstants)

    @property
    def step_constants(self) -> StackConstants:
        """The constants of the step time; raises an `InputError` if the stack has others.

        Raises
        ------
        InputError
            If the stack has others.
        """
        if not isinstance(self.constants, StackConstants):
            message = f"{self.name} has no formulas of a transformer's step"
            raise InputError(message, field="--stack", remedy=f"name another stack than {self.name}")
        return self.constants

    def was_measured_on(self, gpu_type: str) -> bool:
        """Return whether the stack was measured on a GPU type, under any of the type's names."""
        known = find_accelerator(gpu_type)
        return gpu_type in self.gpu_types or (known is not None and known.name in self.gpu_types)


class ChosenStack(NamedTuple):
    """A software stack, and a text on the models or GPUs to which it is extrapolated (empty: none)."""

    stack: Stack
    extended: str


def stack_names() -> list[str]:
    """Return the names of the software stacks in conf/stack."""
    return sorted(path.stem for path in (conf_dir() / "stack").glob("*.yaml"))


def choose_stack(
    family: str,
    architecture: str,
    gpu_type: str,
    *,
    fp8: bool,
    year: int | None = None,
    stacks: Sequence[Stack] | None = None,
) -> ChosenStack:
    """Choose a model's stack on a GPU type: that of the nearest year that was measured on both.

    A stack that was measured on the model's family goes before those of transformers in general. Where there
    is none, a transformer has the one of the nearest year that was measured on the GPU type; else the
    family's own, or a default, is extended.

    Parameters
    ----------
    architecture : str
        `DENSE` or `EXPERTS`; empty for a model that is no transformer.
    fp8 : bool
        Whether the GPU type has such arithmetic.
    year : int or None
        Of the software; None: the newest.
    stacks : sequence of Stack, optional
        Among which; those of conf/stack by default.
    """
    known = list(stacks or current_stacks())
    own = [stack for stack in sort_by_year(known, year) if family in stack.models]
    of_steps = [stack for stack in sort_by_year(known, year) if architecture and stack.of_steps]
    default = DEFAULT_STACKS[fp8] if architecture else OPERATORS_STACK
    near = sort_by_year(known, year or int(default[-4:]))
    # Of another framework only where the default's has no stack at all.
    fallback = own or sorted(near, key=lambda stack: stack.name[:-4] != default[:-4])
    measured = (stack for stack in (*own, *of_steps) if stack.was_measured_on(gpu_type))
    stack = next(measured, fallback[0])
    return ChosenStack(stack, describe_extension(stack, family, architecture, gpu_type))


def current_stacks() -> list[Stack]:
    """Return the stacks whose name ends in a year; a former fit's, for a frozen board, ends in a day."""
    return [load_stack(name) for name in stack_names() if re.search(r"-20\d\d$", name)]


def of_framework(stacks: Iterable[Stack], name: str) -> list[Stack]:
    """Return the stacks of a framework, which the name of it or of one of its stacks says; all by default."""
    starts = next((own for own in FRAMEWORKS.values() if name.startswith(own)), "")
    return [stack for stack in stacks if stack.name.startswith(starts)]


def sort_by_year(stacks: Iterable[Stack], year: int | None) -> list[Stack]:
    """Sort stacks by how near they are to a year (None: the newest first), then by measured GPU types."""

    def order(stack: Stack) -> tuple[int, int, int]:
        of = int(stack.name[-4:])
        return (0 if year is None else abs(of - year), -of, -len(stack.gpu_types))

    return sorted(stacks, key=order)


def choose_for_shape(
    shape: TransformerShape,
    machine: Machine,
    year: int | None = None,
    stacks: Sequence[Stack] | None = None,
) -> ChosenStack:
    """Choose the stack for a transformer on a machine, as `choose_stack` does."""
    architecture, fp8 = EXPERTS if shape.experts else DENSE, machine.fp8_tflops is not None
    return choose_stack(shape.name, architecture, machine.name, fp8=fp8, year=year, stacks=stacks)


def describe_extension(stack: Stack, family: str, architecture: str, gpu_type: str) -> str:
    """Describe to what model or GPU type a stack is extrapolated; empty if it was measured on both."""
    known = family in stack.models or architecture in stack.models
    names = [*([] if known else [family]), *([] if stack.was_measured_on(gpu_type) else [gpu_type])]
    if not names:
        return ""
    titles = {DENSE: "dense transformers", EXPERTS: "mixtures of experts"}
    models, types = (", ".join(titles.get(n, n) for n in all_) for all_ in (stack.models, stack.gpu_types))
    measured = f"measured on {models} on {types}" if models else "which does not say what it was measured on"
    return f"stack {stack.name}, {measured}, is extended to {' on '.join(names)}"


def load_stack(name: str) -> Stack:
    """Load a software stack by its name in conf/stack or from the path of a YAML file.

    Raises
    ------
    InputError
        If there is none of that name, or the file is malformed: names file, line and key.
    """
    path, known = Path(name), stack_names()
    if not name.endswith((".yaml", ".yml")):
        if name not in known:
            raise InputError(f"unknown stack {name!r}", field="--stack", remedy=nearest(name, known))
        path = conf_dir() / "stack" / f"{name}.yaml"
    try:
        status = path.stat()
    except OSError:
        # Reading it says what is wrong.
        return _read_stack(path)
    return _read_once(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _read_once(path: Path, mtime_ns: int, size: int) -> Stack:
    return _read_stack(path)


def _read_stack(path: Path) -> Stack:
    from pydantic import create_model

    from clustergym.cluster.schema import StrictSchema, Text, validate_content
    from clustergym.common.yaml_file import read_mapping

    source = read_mapping(path)
    made = FORMULAS.get(str(source.content.get("formulas")), StackConstants)
    keys: dict[str, Any] = {"formulas": (Literal["steps", "operators"], "steps"), "fitted_to": (str, "")}
    keys |= {"gpu_types": (list[Text], []), "models": (list[Text], []), "constants": (_schema(made), ...)}
    file_keys: Any = create_model("StackKeys", __base__=StrictSchema, **keys)
    given = validate_content(file_keys, source.content, file=path, source=source)
    constants = made(**given.constants.model_dump())
    return Stack(path.stem, constants, given.fitted_to, tuple(given.gpu_types), tuple(given.models))


def _schema(made: type[Any]) -> Any:
    """Return the schema of constants, all of which are numbers."""
    from pydantic import Field, create_model

    from clustergym.cluster.schema import StrictSchema

    # A step without a part has the constant 0; times of operators are divided by most of theirs.
    number = Annotated[float, Field(ge=0, lt=1e9) if made is StackConstants else Field(gt=0, lt=1e9)]
    keys: dict[str, Any] = {
        one.name: (number, one.default if made is StackConstants and one.default is not MISSING else ...)
        for one in fields(made)
    }
    return create_model("ConstantsKeys", __base__=StrictSchema, **keys)


def round_constants(constants: Any) -> Any:
    """Return constants rounded to four significant digits."""
    return replace(constants, **{name: float(f"{value:.4g}") for name, value in asdict(constants).items()})


def stack_yaml(stack: Stack, about: Iterable[str]) -> str:
    """Return the text of a stack's YAML file: a comment, what was measured, and the constants."""
    lines = [f"# {line}" for line in about]
    lines += [f"formulas: {'steps' if stack.of_steps else 'operators'}", f'fitted_to: "{stack.fitted_to}"']
    lines += [f"gpu_types: [{', '.join(stack.gpu_types)}]", f"models: [{', '.join(stack.models)}]"]
    lines.append("constants:")
    lines += [f"  {name}: {value}" for name, value in asdict(round_constants(stack.constants)).items()]
    return "\n".join(lines) + "\n"
