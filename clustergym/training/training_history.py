"""Keeps the state of a training in a JSON file, from which a killed training continues."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from clustergym.common.errors import InputError
from clustergym.common.reading import read_json
from clustergym.common.writing import atomic_path

LARGEST_BYTES = 2**28
REMEDY = "delete it, or give another output="


@dataclass
class TrainingHistory:
    """What a training needs to go on; fields are plain numbers, lists and dicts.

    Attributes
    ----------
    key : dict
        Seed and parameters; a state of another key is refused.
    """

    schema: ClassVar[str]
    key: dict[str, Any]

    @classmethod
    def read(cls, path: Path, key: dict[str, Any]) -> Self:
        """Read the history of a training with this key; an empty one if there is no file.

        Raises
        ------
        InputError
            If the file is damaged, or of another training.
        """
        key = plain(key)
        if not path.is_file():
            return cls(key)
        try:
            found = read_json(path, LARGEST_BYTES, REMEDY)
            ours = found.pop("schema") == cls.schema and found["key"] == key
            history = cls(**found)
            if ours:
                history.check()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(path) from error
        if not ours:
            raise of_another(path)
        return history

    def check(self) -> None:
        """Raise a ValueError if no training with this key can have written the history."""

    def write(self, path: Path) -> None:
        """Write it in one step."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps({"schema": self.schema, **asdict(self)}), encoding="utf-8")


def plain(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def damaged(path: Path) -> InputError:
    """Return the error of a file that no training has written."""
    return InputError("is not a state of a training", file=path, remedy=REMEDY)


def of_another(path: Path) -> InputError:
    """Return the error of a state of a training with another key."""
    return InputError("is of a training with other parameters", file=path, remedy=REMEDY)
