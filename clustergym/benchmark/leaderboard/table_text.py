"""A board's table of figures as people read it: a row for each policy, a column for each family of traces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from clustergym.benchmark.leaderboard.cells import BOUND, FigureTable
from clustergym.benchmark.leaderboard.entry import LOGS
from clustergym.benchmark.leaderboard.pairs import (
    BEST,
    Comparison,
    Ratio,
    compare_with_reference,
    correlate_halves,
    mean_metric,
)
from clustergym.benchmark.leaderboard.sealed_entry import LIMITS
from clustergym.common.tables import table as format_table
from clustergym.results.metrics.catalogue import METRICS

TITLES = {BEST: "*the best policy in each cell*", BOUND: "*lower bound*"}


LOGGED = """\
`logs/` has the decisions of some rows on the first seed of each family: `check` replays them without the
policy's code. The other rows it runs again.

"""

SEALED = " Rows of the sealed list are run on seeds that were drawn after them, the reference beside them."
OPEN, CLOSED = "open", "sealed"
LISTS = {
    CLOSED: f"""\
Seeds are drawn after the agent ([how](../../docs/leaderboards.md#sealed-tests)). *sealed* rows are weights or
programs of others, which the board plays: in a process that is sent what policies see, with the mask of what
is feasible, and nothing else, and that has {LIMITS.decision_cpu_s:g} s of CPU time for a decision.""",
    OPEN: "The seeds are public: plans, hindsight and what is fitted to them may stand here, as a bound.",
}

PAGE = """\
# {title}

{summary}

{price}

{described}

Rules: *published* are those of a policy's paper, with its parameters and nothing of ours; *guarded* has one
rule besides, for policies that preempt or resize without counting restarts: a change is made if it pays back
its restart by the policy's own estimate, or after a stated share of running where it has none. *simple* and
*learned* rows are of no paper. A dash: not run, or not to the end. Under each condition the ratio is of the
same runs with changed overrides: {conditions}.

{table}

{stopped}{logged}Version {version}. `cells.yaml` says what is run, and
`cells.csv.gz` has a row for each run; a row of other code than today's is stale and not shown.

    clustergym leaderboard fill {name} --hours 2
    clustergym leaderboard table {name}
    clustergym leaderboard check {name}

The first command runs what is missing, the second prints this table, and the third runs drawn rows again.
"""


def find_title(table: FigureTable, name: str) -> str:
    """Return the title of a row."""
    return TITLES.get(name) or table.policies[name].title


def render_table(table: FigureTable) -> str:
    """Return the page of a board with a table of figures."""
    board, conditions = table.board, table.keys.conditions
    changes = [
        f"*{name}* `{' '.join(one.overrides)}` ({one.seeds} seeds)" for name, one in conditions.items()
    ]
    stopped = [f"- {line}\n" for line in [*list_stopped(table), *list_sealed(table)]]
    return PAGE.format(
        title=board.title,
        summary=board.summary,
        price=board.price or "Profiles are free.",
        described=describe_table(table) + describe_halves(table),
        conditions=", ".join(changes) or "none",
        table="\n\n".join(_render_list(table, name) for name in ([*LISTS] if table.keys.sealed else [""])),
        stopped="".join([*stopped, "\n"]) if stopped else "",
        logged=LOGGED if (board.folder / LOGS).is_dir() else "",
        version=board.version,
        name=board.name,
    )


def _render_list(table: FigureTable, name: str) -> str:
    """Return a list of a board's page: its table, and where it is one of two, what it is."""
    text = format_table(list_headers(table), list(list_table_rows(table, name)), words=(0, 1))
    if not name:
        return text
    seeds = [f"- {line}" for line in list_values(table)] if name == CLOSED else []
    return "\n".join([f"## {name.capitalize()}\n\n{LISTS[name]}\n\n{text}", *([""] if seeds else []), *seeds])


def list_values(table: FigureTable) -> Iterator[str]:
    """Yield a line on what the seeds of each sealed row were drawn from, so that anyone can look it up."""
    for name, (entry, _, sha256) in table.agents.items():
        beacon, value = entry.beacon, f"`{entry.beacon.value}`" if entry.beacon.value else "not known yet"
        days = f"announced on {beacon.announced}, due on {beacon.due}"
        drawn = f"{beacon.source}, {beacon.round} ({days}): {value}"
        yield f"{find_title(table, name)} (class {entry.information_class}): SHA-256 `{sha256}`; {drawn}"
    learned = [name for name in table.keys.policies if table.condition_of(name) and name not in table.agents]
    if learned:
        titles = "; ".join(find_title(table, name) for name in learned)
        yield f"sealed without a later value, by parameters and weights alone: {titles}"


def format_ratio(found: Ratio | None) -> str:
    """Return a ratio with its interval, or with a question mark where there are too few seeds for one."""
    if found is None:
        return "-"
    sign = "" if found.compare == "ratio" else "+"
    if found.low is None or found.high is None:
        return f"{found.value:{sign}.2f} [?]"
    return f"{found.value:{sign}.2f} [{found.low:{sign}.2f}, {found.high:{sign}.2f}]"


def compare_all(table: FigureTable, condition: str | None = None) -> dict[str, Comparison]:
    """Return the comparison of every row, the best first; rows without one stand last."""
    # Where learned rows have seeds of their own, no policy is the best of all on the same ones.
    names = [*table.keys.policies, *([] if table.keys.sealed else [BEST])]
    found = {name: compare_with_reference(table, name, condition) for name in names}

    def rank(item: tuple[str, Comparison]) -> float:
        return table.board.sign * item[1].overall.value if item[1].overall else math.inf

    return dict(sorted(found.items(), key=rank))


def list_headers(table: FigureTable) -> list[str]:
    """Return the headings of the columns."""
    return [
        "policy",
        "rules",
        *table.keys.scenarios,
        "over families",
        "n",
        describe_metric(table),
        *table.keys.conditions,
    ]


def list_table_rows(table: FigureTable, of_list: str = "") -> Iterator[list[str]]:
    """Yield the texts of each row, or of each row of one list."""
    under = {label: compare_all(table, label) for label in table.keys.conditions}
    for name, found in compare_all(table).items():
        if of_list and (of_list == CLOSED) != bool(table.condition_of(name)):
            continue
        policy = table.policies.get(name)
        seeds = min((one.seeds if one else 0 for one in found.families.values()), default=0)
        mean = mean_metric(table, name)
        yield [
            find_title(table, name),
            "" if policy is None else policy.rules,
            *(format_ratio(one) for one in found.families.values()),
            format_ratio(found.overall),
            f"{seeds}" if seeds else "-",
            "-" if mean is None else f"{mean / (3600 if in_hours(table) else 1):.2f}",
            *(format_ratio(of[name].overall).partition(" ")[0] for of in under.values()),
        ]


def in_hours(table: FigureTable) -> bool:
    """Return whether a board's metric is a time."""
    return METRICS[table.board.metric].unit == "s"


def describe_metric(table: FigureTable) -> str:
    """Return the name of a board's metric, with its unit."""
    if table.board.metric == "jct_mean":
        return "mean JCT, h"
    return f"{table.board.metric}{', h' if in_hours(table) else ''}"


def list_stopped(table: FigureTable) -> list[str]:
    """Return a line on each policy of which a run did not end, with the reason."""
    every = ((name, compare_with_reference(table, name).stopped) for name in table.keys.policies)
    return [f"{find_title(table, name)} does not end in {reason}" for name, reason in every if reason]


def list_sealed(table: FigureTable) -> list[str]:
    """Return a line on each sealed test: ratios on seeds that the parameters and weights determine."""
    lines = []
    for name in () if table.keys.sealed else table.keys.policies:
        label = table.keys.sealed_label(name)
        rivals = sorted({place.policy for place in table.rows if place.condition == label} - {name})
        ratios = [compare_with_reference(table, name, label, rival).overall for rival in rivals]
        texts = [
            f"{format_ratio(one)} of {find_title(table, rival)}, n {one.seeds}"
            for rival, one in zip(rivals, ratios, strict=True)
            if one
        ]
        if texts:
            lines.append(f"{find_title(table, name)} on sealed seeds: {'; '.join(texts)}")
    return lines


def describe_table(table: FigureTable) -> str:
    """Say in one line what the figures are."""
    metric = "Mean JCT" if table.board.metric == "jct_mean" else f"`{table.board.metric}`"
    of = f"that of the reference ({find_title(table, table.keys.reference)}) on the same trace"
    over, mean, on = "over", "geometric mean", "logarithms"
    if table.keys.compare == "difference":
        over, mean, on = "less", "mean", "differences"
    how = (
        f"{metric} {over} {of}: {mean} over n seeds in each family, families with"
        f" equal weight; 95 % intervals by Student's t on {on}"
    )
    better = "" if table.board.metric == "jct_mean" else f" {table.board.better.capitalize()} is better."
    return f"{how}, none below eight seeds ([?]).{better}{SEALED if table.keys.sealed else ''}"


def describe_halves(table: FigureTable) -> str:
    """Say how much the order of the rows hangs on the seeds; nothing where too little was run."""
    tau = correlate_halves(table, [name for name in table.keys.policies if name != BOUND])
    return "" if tau is None else f" Kendall's tau of the order between odd and even seeds: {tau:.2f}."


def plain_table(table: FigureTable) -> list[Mapping[str, Any]]:
    """Return the same figures for --json."""
    plain = list[Mapping[str, Any]]()
    for name, found in compare_all(table).items():
        families = {family: one and one._asdict() for family, one in found.families.items()}
        plain.append(
            {
                "policy": name,
                "families": families,
                "overall": found.overall and found.overall._asdict(),
                f"mean_{table.board.metric}": mean_metric(table, name),
                "stopped": found.stopped,
            }
        )
    return plain
