"""Reads what a paper published and claims from `published/PAPER.yaml`, and holds each claim against our figures.

Such a file has two keys. `published` holds figures of the paper that its claims or its page's tables name.
`claims` is a list of claims and of groups: a group has `claims` of its own, which take over its other keys.
With `each`, a list of mappings or the path to one, a claim or group stands once for each of them, and takes over
its keys.

The keys of a claim:

- `claim`, `source`: what the paper says, without its figure, and where.
- `paper`: its figure; `[least, most]`; `{at least: F}`, `{at most: F}`; `{accuracy: F}`, judged by its error;
  `above` or `below`, where the text states only the sign of an effect; or a path to a figure.
- `ours`: the path of our figure, in "fair" and in "as published"; or a mapping of a setting to a whole path.
  Without it nothing here can show the claim.
- `rule`: how the two are compared, one of `RULES`. `unit` and `decimals` replace those of the rule.
- `why`: a text, or several, of which the first counts whose figures are all there. A gap without any is
  "not known". `why_reversed` follows it where ours has the opposite sign.
- `first_stated_by`, `rests_on`: as in `PaperClaim`; `rests_on` lists the claims from which this one follows.

In texts and paths, `{name}` is another key of the claim, and `{a/b:.1f}` our figure at the path a/b.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.common.errors import InputError, nearest
from clustergym.common.yaml_file import YamlMapping, field_name, read_mapping

from .claims import FAIR, NO_FIGURE, PUBLISHED, REPRODUCED, REVERSED, PaperClaim

FOLDER = Path(__file__).parent / "published"
RULES: Mapping[str, dict[str, Any]] = {
    "change": {"unit": "%", "neutral": 0.0, "decimals": 1},
    "ratio": {"unit": "x", "neutral": 1.0, "decimals": 2},
    "quantity": {"unit": "%", "neutral": None, "decimals": 1},
    "statement": {"unit": "", "neutral": 0.0, "decimals": 0},
}
"""An effect in percent or as a ratio, judged by its share of the paper's; a quantity that ours should equal; a
statement that is 1 if it holds for our results, else 0."""
OWN_KEYS = ("claim", "source", "paper", "ours", "rule", "unit", "decimals", "why", "why_reversed")
KEYS = (*OWN_KEYS, "first_stated_by", "rests_on")
SIGNS = {"above": 1, "below": -1}
UNKNOWN = "not known"
_NAMED = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")


class _MissingFigureError(KeyError):
    """A path that leads to no figure."""


def look_up(figures: Any, path: str) -> Any:
    """Return the value at a path such as `philly/664/jct_mean`; None if there is none."""
    for key in path.split("/"):
        if not isinstance(figures, Mapping):
            return None
        figures = next((value for name, value in figures.items() if str(name) == key), None)
    return figures


@cache
def _read(paper: str) -> YamlMapping:
    return read_mapping(FOLDER / f"{paper}.yaml")


def published(paper: str) -> Mapping[str, Any]:
    """Return the figures of a paper that stand under `published` in its file."""
    figures: Mapping[str, Any] = _read(paper).content["published"]
    return figures


def judge_claims(paper: str, figures: Mapping[str, Any]) -> list[PaperClaim]:
    """Return the claims of a paper beside our figures.

    Parameters
    ----------
    paper : str
        The name of its file.
    figures : mapping
        Our figures by path, below `fair` and `as published`, and what the texts name besides.

    Raises
    ------
    InputError
        If the file has an error; it names the line and the claim.
    """
    file, made = _read(paper), list[PaperClaim]()
    scope = {**figures, "published": file.content.get("published", {})}
    for entry in _entries(file, file.content["claims"], {}, ("claims",), scope):
        made.append(entry.judge(scope, made))
    return made


class _Entry(NamedTuple):
    """One claim with the keys of its groups, and where it stands in its file."""

    file: YamlMapping
    given: Mapping[str, Any]
    keys: tuple[str | int, ...]

    def refuse(self, message: str, key: str = "", remedy: str = "") -> InputError:
        keys = (*self.keys, key) if key else self.keys
        line = self.file.line(keys)
        return InputError(message, file=self.file.path, line=line, field=field_name(keys), remedy=remedy)

    def fill(self, text: str, scope: Mapping[str, Any]) -> str:
        """Return a text with keys of the claim and figures in place of their names, the innermost first."""

        def value(name: re.Match[str]) -> str:
            found = self.given.get(name[1], look_up(scope, name[1]))
            if found is None:
                raise _MissingFigureError(name[1])
            return format(found, name[2] or "")

        while (filled := _NAMED.sub(value, text)) != text:
            text = filled
        return text

    def check_keys(self) -> None:
        """Raise an `InputError` for a key that is missing, or that neither a claim has nor a text names."""
        named = {name[1] for name in _NAMED.finditer(str(self.file.content))}
        for key in self.given:
            if key not in KEYS and key not in named:
                raise self.refuse(f"unknown key {key!r}", key, nearest(key, KEYS))
        for key in ("claim", "source"):
            if not isinstance(self.given.get(key), str):
                raise self.refuse("is missing", key, "write it as text")

    def text(self, key: str, scope: Mapping[str, Any]) -> str:
        try:
            return self.fill(self.given[key], scope)
        except (KeyError, TypeError, ValueError) as error:
            raise self.refuse(f"is no text that can be filled in: {error}", key) from None

    def judge(self, scope: Mapping[str, Any], before: Iterable[PaperClaim]) -> PaperClaim:
        """Return the claim beside our figures, with its reason; `before` are the claims above it."""
        rule = self.given.get("rule", "change")
        if rule not in RULES:
            raise self.refuse(f"unknown rule {rule!r}", "rule", nearest(rule, RULES))
        fair, as_published = self._ours(scope)
        fields = {
            **RULES[rule],
            **{key: self.given[key] for key in ("unit", "decimals") if key in self.given},
        }
        if rule == "statement":
            fields["paper"] = 1.0
        missing = "ours" in self.given and fair is None and as_published is None
        claim = self.text("claim", scope) + " (1: yes)" * (rule == "statement")
        fields |= {"paper": None, **fields, **self._paper(scope)}
        fields |= {"source": self.text("source", scope), "quick": not missing}
        fields["first_stated_by"] = self.given.get("first_stated_by", "")
        try:
            row = PaperClaim(claim, fair=fair, as_published=as_published, **fields)
        except (ValueError, TypeError) as error:
            raise self.refuse(str(error)) from None
        return replace(row, why=self._why(row, scope), rests_on=self._reversed(before, scope))

    def _ours(self, scope: Mapping[str, Any]) -> Iterator[float | None]:
        given = self.given.get("ours", {})
        for setting in (FAIR, PUBLISHED):
            path = f"{setting}/{given}" if isinstance(given, str) else given.get(setting)
            found = None if path is None else look_up(scope, self.fill(path, scope))
            yield None if found is None else float(found)

    def _paper(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a claim that its key `paper` sets."""
        match given := self.given.get("paper"):
            case None:
                return {}
            case str():
                path = self.fill(given, scope)
                if path in SIGNS:
                    return {"direction": SIGNS[path]}
                return {"paper": None if (found := look_up(scope, path)) is None else float(found)}
            case int() | float():
                return {"paper": float(given)}
            case [least, most]:
                return {"paper": float(least), "paper_most": float(most)}
            case {"accuracy": accuracy}:
                return {"paper": 100 - accuracy}
            case {"at least": figure} | {"at most": figure}:
                return {"paper": float(figure), "comparison": next(iter(given))}
        raise self.refuse(f"{given!r} is no figure", "paper", "give a figure, a range, a side or a path")

    def _why(self, row: PaperClaim, scope: Mapping[str, Any]) -> str:
        """Return the reason that is given, or that ours is not what the paper says for an unknown one."""
        given = self.given.get("why", "")
        why, texts = None, given if isinstance(given, list) else [given]
        for text in texts:
            try:
                why = self.fill(text, scope)
                break
            except _MissingFigureError as error:
                missing = error
        if why is None and row.ours:
            raise self.refuse(f"there is no figure {missing.args[0]!r}", "why")
        if row.direction and row.main_verdict == REVERSED:
            return "; ".join(filter(None, [why, self.given.get("why_reversed")])) or UNKNOWN
        unexplained = row.ours and not why and row.verdict not in (REPRODUCED, NO_FIGURE)
        return UNKNOWN if unexplained else why or ""

    def _reversed(self, before: Iterable[PaperClaim], scope: Mapping[str, Any]) -> str:
        """Return the first claim above that this one rests on and whose effect our runs reverse."""
        rows = {row.claim: row for row in before}
        names = [self.fill(name, scope) for name in self.given.get("rests_on", ())]
        for name in names:
            if name not in rows:
                raise self.refuse(f"there is no claim {name!r} above", "rests_on", nearest(name, rows))
        return next((name for name in names if rows[name].main_verdict == REVERSED), "")


def _entries(
    file: YamlMapping,
    blocks: Any,
    given: Mapping[str, Any],
    keys: tuple[str | int, ...],
    scope: Mapping[str, Any],
) -> Iterator[_Entry]:
    """Yield the claims of a list of claims and groups, in order."""
    for at, block in enumerate(blocks):
        here = _Entry(file, given, (*keys, at))
        if not isinstance(block, Mapping):
            raise here.refuse("is no claim", remedy="write its keys as `key: value`")
        own = {key: value for key, value in block.items() if key not in ("each", "claims")}
        for case in _cases(block.get("each", {}), scope):
            entry = here._replace(given={**given, **own, **case})
            if "claims" in block:
                yield from _entries(file, block["claims"], entry.given, (*here.keys, "claims"), scope)
            else:
                entry.check_keys()
                yield entry


def _cases(each: Any, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the keys of each copy of a claim or group: of `each`, given or at a path, the values side by side."""
    columns = look_up(scope, each) if isinstance(each, str) else each
    rows = zip(*columns.values(), strict=True) if columns else [()]
    return [dict(zip(columns, row, strict=True)) for row in rows]
