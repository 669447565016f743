"""Print the help of commands that take KEY=VALUE: their groups, names and keys."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import yaml

from clustergym.common.paths import conf_dir

RUN_SUMMARY = """\
Run a policy on a scenario, beside a reference policy (compare=fcfs; compare=null: none), print the metrics
of both and write the results."""
RUN_MORE = """\
Options:
  -m, --multirun  a sweep: every combination of lists of values, as policy=fcfs,srtf seed=0,1
  --cfg job       print the whole configuration, with the keys of the groups as chosen, and run nothing
  -h, --help      this text

Examples:
  clustergym run policy=srtf
  clustergym run policy=ares policy.alpha=0.8 cluster=arena-b trace=philly-like trace.jobs=100 seed=3
  clustergym run trace=file trace.path=jobs.csv cluster.path=mine.yaml horizon_s=86400
  clustergym run -m policy=fcfs,srtf trace=philly-like seed=0,1,2 compare=null hydra.sweep.dir=outputs/sweep

Results: result.json, config.yaml, jobs.csv, timeline.csv, decisions.jsonl.gz, events.jsonl.gz, report.html,
in outputs/DATE/TIME-POLICY or hydra.run.dir=DIR; of a sweep in a folder for each run below multirun or
hydra.sweep.dir=DIR; of the reference policy below compare/. `clustergym collect DIR` tabulates them."""


def print_help_if_asked(
    name: str, summary: str, argv: Sequence[str], config: str | None = None, more: str = ""
) -> bool:
    """Print the help of a command if `argv` asks for it with -h or --help; return whether it did.

    Parameters
    ----------
    name : str
        Name of the command.
    summary : str
        What it does.
    argv : sequence of str
    config : str, optional
        Its file in `conf/`, without suffix, if it is not named like the command.
    more : str
        Further text.
    """
    if not {"-h", "--help"} & set(argv):
        return False
    text = (conf_dir() / f"{config or name}.yaml").read_text(encoding="utf-8")
    groups, defaults = _groups(text), "Keys, KEY=VALUE, with their defaults"
    words = "[-m] [--cfg job] [GROUP=NAME] [KEY=VALUE] …" if name == "run" else "[KEY=VALUE] …"
    parts = [f"usage: clustergym {name} {words}", summary]
    if groups:
        parts.append("Groups, GROUP=NAME; * is the default:\n" + "\n".join(groups))
        defaults += "; those of a group as GROUP.KEY=VALUE"
    parts.append(f"{defaults}:\n{textwrap.indent(_keys(text), '  ')}")
    print("\n\n".join([*parts, *filter(None, [more])]))
    return True


def _groups(text: str) -> list[str]:
    """Return one line for each group of a configuration, listing the names in the group."""
    defaults = [entry for entry in yaml.safe_load(text).get("defaults", ()) if isinstance(entry, dict)]
    chosen = {group: name for entry in defaults for group, name in entry.items() if " " not in group}
    lines = []
    for group, name in chosen.items():
        found = {path.stem for path in (conf_dir() / group).glob("*.yaml")} | _plugins(group)
        names = ", ".join(f"{option}*" if option == name else option for option in sorted(found))
        start, further = f"  {group + '=':<12}", " " * 14
        lines += textwrap.wrap(
            names, 108, initial_indent=start, subsequent_indent=further, break_on_hyphens=False
        )
    return lines


def _plugins(group: str) -> set[str]:
    from clustergym.scenario.registry import COMPONENTS, entry_points

    return set(entry_points(group)) if group in COMPONENTS else set()


def _keys(text: str) -> str:
    """Return the text of a configuration without its `defaults` and `hydra` blocks."""
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    return "".join(block for block in blocks if not block.startswith(("defaults:", "hydra:"))).strip()
