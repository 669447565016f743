"""Command lines whose complaints are one clear line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from clustergym.inputs.errors import InputError


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are `InputError`s."""

    def error(self, message: str) -> NoReturn:
        """Raise the complaint."""
        raise InputError(message, remedy=f"see `{self.prog} --help`")
