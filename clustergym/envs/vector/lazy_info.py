"""An info dict that computes some values when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

Makers = Mapping[str, Callable[[], Any]]

if TYPE_CHECKING:
    Dict = dict[str, Any]
else:

    class Dict(MutableMapping, dict):
        """A dict whose methods read and write values by `__getitem__` and `__setitem__`."""


class LazyInfo(Dict):
    """A dict that computes some of its values when they are first read.

    Parameters
    ----------
    known : mapping
    makers : mapping of str to callable
        What makes each of the other values.
    """

    def __init__(self, known: Mapping[str, Any], makers: Makers) -> None:
        dict.__init__(self, known)
        dict.update(self, dict.fromkeys(makers))
        self._makers = dict(makers)

    def __getitem__(self, name: str) -> Any:
        """Return a value."""
        if name in self._makers:
            dict.__setitem__(self, name, self._makers.pop(name)())
        return dict.__getitem__(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        """Replace a value, which need not be made then."""
        self._makers.pop(name, None)
        dict.__setitem__(self, name, value)

    def __delitem__(self, name: str) -> None:
        """Remove a value, which need not be made then."""
        dict.__delitem__(self, name)
        self._makers.pop(name, None)

    # Python reads a dict past the methods above, unless it has an `__iter__` of its own.
    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name)

    def __len__(self) -> int:
        return dict.__len__(self)

    def __ior__(self, other: Any) -> LazyInfo:  # type: ignore[misc, override]
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the recipe to pickle or copy the dict with all values."""
        return dict, (dict(self),)
