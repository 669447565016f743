"""Work spread over processes, with results in order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def workers(processes: int) -> Iterator[Any]:
    """Yield a `map` over so many processes (0: one per core); over this one where it is 1."""
    count = processes or os.cpu_count() or 1
    if count == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        yield pool.map
