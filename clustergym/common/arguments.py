"""A command-line parser that reports a mistake in one clear line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from clustergym.common.errors import InputError


class Parser(argparse.ArgumentParser):
    """An `argparse` parser that raises an `InputError` instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise `message` as an `InputError`."""
        raise InputError(message, remedy=f"see `{self.prog} --help`")
