"""What users rely on: what each parameter of a scenario and of an environment is where nobody gives it.

`defaults.txt` has a line for each. A line that changes changes results, so it is changed there by hand, and
told in the changelog.
"""

import dataclasses
import importlib
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import clustergym.envs
import clustergym.scenario
from clustergym.common.parameters import Parameters
from clustergym.scenario.environments import ENVIRONMENTS

TABLE = Path(__file__).with_name("defaults.txt")


def classes(base: type) -> Iterator[type]:
    """Yield the classes of parameters of scenarios and environments, whose modules are imported."""
    for one in base.__subclasses__():
        if one.__module__.startswith(("clustergym.scenario.", "clustergym.envs.")):
            yield one
        yield from classes(one)


def defaults(of: type) -> Iterator[str]:
    """Yield a line for each parameter that may be left out."""
    for field in dataclasses.fields(of):  # type: ignore[arg-type]
        if field.init and field.default is not dataclasses.MISSING:
            yield f"{of.__name__}.{field.name} = {field.default!r}"
        elif field.init and field.default_factory is not dataclasses.MISSING:
            yield f"{of.__name__}.{field.name} = {field.default_factory()!r}"


def test_what_is_left_out_is_as_before() -> None:
    for package in (clustergym.scenario, clustergym.envs):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != "clustergym.envs.tenants_parallel":  # Needs PettingZoo.
                importlib.import_module(module.name)
    found = {line for of in classes(Parameters) if dataclasses.is_dataclass(of) for line in defaults(of)}
    found |= {f"{row.id}: {dict(row.kwargs)}, threshold {row.reward_threshold}" for row in ENVIRONMENTS}
    known = TABLE.read_text(encoding="utf-8").splitlines()
    if os.environ.get("GOLDEN") == "write":
        TABLE.write_text("".join(f"{line}\n" for line in sorted(found)), encoding="utf-8")
    assert sorted(found - {*known}) == []
    assert sorted({*known} - found) == []
