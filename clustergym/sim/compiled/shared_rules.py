"""The rules of one job (`clustergym.sim.rules`) as compiled functions call them."""

from __future__ import annotations

from clustergym.sim import rules
from clustergym.sim.compiled.numba_cache import let_compiled_call

for rule in rules.RULES:
    let_compiled_call(rule)

__all__ = ["rules"]
