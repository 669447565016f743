"""Reads software stacks from YAML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir
from clustergym.oracle.models.shape import Machine
from clustergym.oracle.models.shape_files import make_schema
from clustergym.oracle.stacks.step_time import StackConstants

DEFAULT_STACKS = {False: "fsdp-2023", True: "megatron-2026"}
"""Stack of GPUs without and with fp8 arithmetic: that of their newest measurements."""


@dataclass(frozen=True)
class Stack:
    """A software stack: its constants, and what they were fitted to."""

    name: str
    constants: StackConstants
    fitted_to: str = ""


def stack_names() -> list[str]:
    """Return the names of the stacks in conf/stack."""
    return sorted(path.stem for path in (conf_dir() / "stack").glob("*.yaml"))


def default_stack(machine: Machine) -> str:
    """Return the stack with the newest measurements for a GPU."""
    return DEFAULT_STACKS[machine.fp8_tflops is not None]


def load_stack(name: str) -> Stack:
    """Return a software stack: one of conf/stack by name, or a YAML file by its path.

    Raises
    ------
    InputError
        If there is none of that name, or the file is malformed.
    """
    from pydantic import create_model

    from clustergym.cluster.schema import StrictSchema, validate_content
    from clustergym.common.yaml_file import read_mapping

    known = stack_names()
    if not name.endswith((".yaml", ".yml")) and name not in known:
        raise InputError(f"unknown stack {name!r}", field="--stack", remedy=nearest(name, known))
    path = Path(name) if name.endswith((".yaml", ".yml")) else conf_dir() / "stack" / f"{name}.yaml"
    file_keys: Any = create_model(
        "StackKeys", __base__=StrictSchema, fitted_to=(str, ""), constants=(make_schema(StackConstants), ...)
    )
    source = read_mapping(path)
    given = validate_content(file_keys, source.content, file=path, source=source)
    return Stack(path.stem, StackConstants(**given.constants.model_dump()), given.fitted_to)


def stack_yaml(stack: Stack, about: Iterable[str]) -> str:
    """Return the file of a stack: a comment, what it was fitted to, and its constants with four digits."""
    lines = [f"# {line}" for line in about]
    lines += [f'fitted_to: "{stack.fitted_to}"', "constants:"]
    lines += [f"  {name}: {float(f'{value:.4g}')}" for name, value in asdict(stack.constants).items()]
    return "\n".join(lines) + "\n"
