"""Standard output that cannot be written to: a command goes on without it, and says so at its end.

Nobody may read it any more (`clustergym … | head -1`), its disk may be full, or it may be closed.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any


class _Lasting(io.FileIO):
    """A stream of this process that drops what is written after the first write that fails."""

    failure: OSError | None = None

    def write(self, content: Any) -> int:
        """Write bytes; return their number, whether or not they could be written."""
        if self.failure is None:
            try:
                return super().write(content)
            except OSError as error:
                self.failure = error
        return len(content)


@contextlib.contextmanager
def lasting_output() -> Iterator[list[OSError]]:
    """Give a context in which printing never fails; at its end the list has why standard output failed.

    That nobody reads it any more is no failure. Streams that something else has replaced stay as they are.
    """
    failures: list[OSError] = []
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    made: dict[str, _Lasting] = {}
    for name, stream in before.items():
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 -- for the process
        elif stream is getattr(sys, f"__{name}__"):
            made[name] = _Lasting(stream.fileno(), "wb", closefd=False)
            lasting = io.TextIOWrapper(
                io.BufferedWriter(made[name]),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
            )
            setattr(sys, name, lasting)
    try:
        yield failures
    finally:
        for name in made:
            getattr(sys, name).flush()
            setattr(sys, name, before[name])
        failure = made["stdout"].failure if "stdout" in made else None
        if failure is not None and not isinstance(failure, BrokenPipeError):
            failures.append(failure)
