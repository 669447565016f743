"""Imports files of examples/ and benchmarks/, which are in no package."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def import_file(path: str) -> Any:
    """Return the module that a file of the checkout is, run anew."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[module.__name__] = module  # where dataclasses look for it
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module
