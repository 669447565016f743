"""Tables of environments and the Python interface: `python docs/reference_tables.py` writes both pages."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from environment_pages import families, load_class, sections

import clustergym
from clustergym.common.tables import table
from clustergym.envs.families import ElasticEnv
from clustergym.scenario.policy import KNOWS, InformationClass

DOCS = Path(__file__).parent
ENVIRONMENTS = """\
# Environments at a glance

`python docs/reference_tables.py` writes this page from the docstrings of the environments, which say all of
it; [scheduling environments](README.md) explains them. R: rows of jobs, T: GPU types, K: counts of GPUs,
N: nodes, D: devices of a node, M: minipods. A *baseline* is the return that `reward_threshold` names, where
there is one, in the order of the ids: what a published heuristic reaches, or a little more. Every policy of
[conf/policy](../../conf/policy) also plays the families that edit jobs, by `clustergym.envs.driver.drive`.
"""
PYTHON = """\
# Python interface

`python docs/reference_tables.py` writes this page from the docstrings. `import clustergym` gives these names;
the [tutorial](tutorial.md) uses them.
"""


def tabulate_environments() -> str:
    """Return a row for each family: its ids, observation, action, reward, ends and baseline."""
    base = sections(ElasticEnv)
    rows = []
    for family, ids in families().items():
        found = base | sections(load_class(ids[0].entry_point))
        ends = re.sub(r"\s+", " ", found["Episode End"]).removeprefix("- Termination: ")
        thresholds = [f"{row.reward_threshold:g}" for row in ids if row.reward_threshold is not None]
        rows.append(
            [
                family,
                "<br>".join(f"`{row.id.removeprefix('ClusterGym/')}`" for row in ids),
                _list_observed(found["Observation Space"]),
                _find_action(found["Action Space"]),
                _find_reward(found["Rewards"], base["Rewards"]),
                re.split(r"[;.] ", ends)[0],
                ", ".join(thresholds) or "-",
            ]
        )
    heads = [
        "family",
        "ids (`ClusterGym/…`)",
        "observation",
        "action",
        "reward by default",
        "ends",
        "baseline",
    ]
    return table(heads, rows, words=range(len(heads)))


def _list_observed(text: str) -> str:
    keys = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\(.*?\)) \|", text, re.MULTILINE)
    own = ", ".join(f"{name} {shape}" for name, shape in keys)
    return "; ".join(filter(None, ["as Elastic" if text.startswith("As ") else "", own])) or _first(text)


def _find_action(text: str) -> str:
    said = _first(text)
    space = re.search(r"`(?:Discrete|Box)\(.*?\)`", text)
    return said if "`" in said or text.startswith("As ") or space is None else f"{space[0]}: {said}"


def _find_reward(text: str, base: str) -> str:
    found = re.search(r"`(\{.*?\})`", text) or re.search(r"`(\{.*?\})`", base)
    assert found is not None
    return f"`{found[1]}`"


def _first(text: str) -> str:
    """Return the first sentence, on one line."""
    plain = re.sub(r"\s+", " ", text.replace("`ElasticEnv`", "Elastic"))
    return re.split(r"(?<=[.:;])\s|\|", plain)[0].strip().rstrip(".:;")


def tabulate_python() -> str:
    """Return a table of the functions, and one of the members of each class."""
    names = [name for name in clustergym.__all__ if not name.startswith("_")]
    found: dict[str, Any] = {name: getattr(clustergym, name) for name in names}
    functions = [[f"`{name}{_sign(of)}`", _say(of)] for name, of in found.items() if inspect.isfunction(of)]
    parts = ["## Functions", table(["function", "what it does"], functions, words=(0, 1))]
    for name, of in found.items():
        if inspect.isclass(of):
            members = [[f"`{member}`", said] for member, said in _list_members(of)]
            parts += [f"## {name}", _say(of), table(["member", "what it is"], members, words=(0, 1))]
    return "\n\n".join(parts)


def _list_members(of: type) -> list[tuple[str, str]]:
    """Return attributes by the class's docstring, then methods and properties by their own."""
    if issubclass(of, InformationClass):
        return [(str(one.value), f"{KNOWS[one]}.") for one in of]
    doc = inspect.cleandoc(of.__doc__ or "").partition("Attributes\n----------\n")[2]
    attributes = re.findall(r"^(\w[\w, ]*) : .*\n((?:    .*\n?)+)", doc, re.MULTILINE)
    found = [(names, _first(text) + ".") for names, text in attributes]
    listed = {names for names, _ in found}
    for name, member in vars(of).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if (
            not name.startswith("_")
            and name not in listed
            and (inspect.isfunction(plain) or isinstance(plain, property))
            and plain.__doc__
        ):
            shown = f"{name}{_sign(plain)}" if inspect.isfunction(plain) else name
            found.append((shown, _say(plain)))
    return found


def _sign(of: Any) -> str:
    """Return a signature as in the source, with `|` so that it ends no cell of a table."""
    plain = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(of))).replace("|", "\\|")
    return plain.replace("(self, ", "(").replace("(self)", "()")


def _say(of: Any) -> str:
    return _first(inspect.cleandoc(of.__doc__ or "").partition("\n\n")[0]) + "."


PAGES = {
    "environments/tables.md": lambda: f"{ENVIRONMENTS}\n{tabulate_environments()}\n",
    "python.md": lambda: f"{PYTHON}\n{tabulate_python()}\n",
}


def main() -> None:
    """Write the pages."""
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
        print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
