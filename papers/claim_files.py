"""Reads what a paper published and claims from `published/PAPER.yaml`, and holds it against our figures.

Such a file has two keys. `published` holds figures of the paper that its claims or its page's tables name.
`claims` is a list of claims and of groups: a group has `claims` of its own, which take over its other keys.
With `each`, lists of values side by side or the path to such lists, a claim or group stands once for each.

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

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.common.errors import InputError, nearest
from clustergym.common.yaml_file import YamlMapping, field_name, read_mapping

from .claims import FAIR, NO_FIGURE, PUBLISHED, REPRODUCED, REVERSED, UNKNOWN, PaperClaim

FOLDER = Path(__file__).parent / "published"
RULES: Mapping[str, dict[str, Any]] = {
    "change": {"unit": "%", "neutral": 0.0, "decimals": 1},
    "ratio": {"unit": "x", "neutral": 1.0, "decimals": 2},
    "quantity": {"unit": "%", "neutral": None, "decimals": 1},
    "statement": {"unit": "", "neutral": 0.0, "decimals": 0, "paper": 1.0},
}
"""An effect in percent or as a ratio, judged by its share of the paper's; a quantity that ours should equal;
a statement, which is 1 if it holds for our results, else 0."""
PLAIN = ("unit", "decimals", "first_stated_by")
KEYS = (
    "claim",
    "source",
    "paper",
    "ours",
    "rule",
    *PLAIN,
    "why",
    "why_reversed",
    "rests_on",
    "each",
    "claims",
)
SIGNS = {"above": 1, "below": -1}
_NAMED = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")


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
    return dict(_read(paper).content["published"])


def judge_claims(paper: str, figures: Mapping[str, Any]) -> list[PaperClaim]:
    """Return the claims of a paper beside our figures.

    Parameters
    ----------
    paper : str
        The name of its file. An error in it is an `InputError` with its line and key.
    figures : mapping
        Our figures by path, below `fair` and `as published`, and what the texts name besides.
    """
    file, made = _read(paper), list[PaperClaim]()
    scope = {**figures, "published": file.content.get("published", {})}
    for entry in _Entry(file, file.content, ()).list_claims(scope):
        made.append(entry.judge(scope, made))
    return made


class _NoFigureError(KeyError):
    """A name in a text that is neither a key of the claim nor a path to a figure."""


class _Entry(NamedTuple):
    """A claim or group with the keys that it has taken over, and where it stands in its file."""

    file: YamlMapping
    given: Mapping[str, Any]
    keys: tuple[str | int, ...]

    def refuse(self, message: str, *keys: str | int, remedy: str = "correct it") -> InputError:
        at = (*self.keys, *keys)
        line = self.file.line(at)
        return InputError(message, file=self.file.path, line=line, field=field_name(at), remedy=remedy)

    def list_claims(self, scope: Mapping[str, Any]) -> "Iterator[_Entry]":
        """Yield the claims of a group, and of the groups in it, in order."""
        own = {key: value for key, value in self.given.items() if key not in ("claims", "each", "published")}
        if not isinstance(blocks := self.given.get("claims"), list):
            raise self.refuse("is missing, or no list", "claims")
        for at, block in enumerate(blocks):
            if not isinstance(block, Mapping):
                raise self.refuse("is no claim", "claims", at, remedy="write its keys as `key: value`")
            entry = self._replace(given={**own, **block}, keys=(*self.keys, "claims", at))
            for case in entry.list_cases(block.get("each", {}), scope):
                one = entry._replace(given={**entry.given, **case})
                yield from one.list_claims(scope) if "claims" in block else [one]

    def list_cases(self, each: Any, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the keys of each copy of a claim or group, from lists side by side or the path to them."""
        columns = look_up(scope, each) if isinstance(each, str) else each
        try:
            rows = zip(*columns.values(), strict=True) if columns else [()]
            return [dict(zip(columns, row, strict=True)) for row in rows]
        except (AttributeError, TypeError, ValueError):
            raise self.refuse("is no set of lists of the same length", "each") from None

    def judge(self, scope: Mapping[str, Any], before: Sequence[PaperClaim]) -> PaperClaim:
        """Return the claim beside our figures, with its reason; `before` are the claims above it."""
        named = {name[1] for name in _NAMED.finditer(str(self.file.content))}
        for key in self.given:
            if key not in KEYS and key not in named:
                raise self.refuse(f"unknown key {key!r}", key, remedy=nearest(key, KEYS))
        if (rule := self.given.get("rule", "change")) not in RULES:
            raise self.refuse(f"unknown rule {rule!r}", "rule", remedy=nearest(rule, RULES))
        claim, source = (self.read_text(key, scope) for key in ("claim", "source"))
        fair, as_published = (self.find_ours(setting, scope) for setting in (FAIR, PUBLISHED))
        fields = {"paper": None, **RULES[rule], **self.read_paper(scope)}
        fields |= {key: self.given[key] for key in PLAIN if key in self.given}
        fields["quick"] = "ours" not in self.given or not fair is as_published is None
        if rule == "statement":
            claim += " (1: yes)"
        try:
            row = PaperClaim(claim, source, fair=fair, as_published=as_published, **fields)
        except (ValueError, TypeError) as error:
            raise self.refuse(str(error)) from None
        row = replace(row, rests_on=self.find_reversed(before, scope))
        return replace(row, why=self.explain(row, scope))

    def fill(self, text: str, scope: Mapping[str, Any]) -> str:
        """Return a text with keys of the claim and figures in place of their names, the innermost first."""

        def value(name: re.Match[str]) -> str:
            found = self.given.get(name[1], look_up(scope, name[1]))
            if found is None:
                raise _NoFigureError(name[1])
            return format(found, name[2] or "")

        while (filled := _NAMED.sub(value, text)) != text:
            text = filled
        return text

    def read_text(self, key: str, scope: Mapping[str, Any], text: Any = None) -> str:
        """Return the text under a key, or `text` that stands there, filled in."""
        text = self.given.get(key) if text is None else text
        if not isinstance(text, str):
            raise self.refuse("is missing, or no text", key)
        try:
            return self.fill(text, scope)
        except _NoFigureError as error:
            raise self.refuse(f"there is no figure {error.args[0]!r}", key) from None
        except (TypeError, ValueError) as error:
            raise self.refuse(str(error), key) from None

    def find_ours(self, setting: str, scope: Mapping[str, Any]) -> float | None:
        given = self.given.get("ours", {})
        if not isinstance(given, str | Mapping):
            raise self.refuse(f"{given!r} is no path", "ours")
        path = f"{setting}/{given}" if isinstance(given, str) else given.get(setting)
        found = None if path is None else look_up(scope, self.read_text("ours", scope, path))
        if not isinstance(found, bool | int | float | None):
            raise self.refuse(f"{found!r} is no figure", "ours")
        return None if found is None else float(found)

    def read_paper(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a claim that its key `paper` sets."""
        given = self.given.get("paper")
        if isinstance(given, str):
            given = self.read_text("paper", scope)
            if given in SIGNS:
                return {"direction": SIGNS[given]}
            given = look_up(scope, given)
        try:
            match given:
                case None:
                    return {}
                case [least, most]:
                    return {"paper": float(least), "paper_most": float(most)}
                case {"accuracy": accuracy}:
                    return {"paper": 100 - accuracy}
                case {"at least": figure} | {"at most": figure}:
                    return {"paper": float(figure), "comparison": next(iter(given))}
            return {"paper": float(given)}
        except (TypeError, ValueError):
            remedy = "give a figure, a range, a side, a sign or a path"
            raise self.refuse(f"{given!r} is no figure", "paper", remedy=remedy) from None

    def explain(self, row: PaperClaim, scope: Mapping[str, Any]) -> str:
        """Return the reason that is given, or that it is not known why ours is not what the paper says."""
        given = self.given.get("why", "")
        why, texts = "", given if isinstance(given, list) else [given]
        for at, text in enumerate(texts):
            try:
                why = self.fill(text, scope)
                break
            except _NoFigureError:
                if row.ours and at == len(texts) - 1:
                    self.read_text("why", scope, text)
        if row.direction and row.main_verdict == REVERSED:
            return "; ".join(filter(None, [why, self.given.get("why_reversed")])) or UNKNOWN
        return UNKNOWN if row.ours and not why and row.verdict not in (REPRODUCED, NO_FIGURE) else why

    def find_reversed(self, before: Sequence[PaperClaim], scope: Mapping[str, Any]) -> str:
        """Return the first claim above that this one rests on and whose effect our runs reverse."""
        rows = {row.claim: row for row in before}
        names = [self.read_text("rests_on", scope, name) for name in self.given.get("rests_on", ())]
        for name in names:
            if name not in rows:
                raise self.refuse(f"there is no claim {name!r} above", "rests_on", remedy=nearest(name, rows))
        return next((name for name in names if rows[name].main_verdict == REVERSED), "")
