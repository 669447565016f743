"""`clustergym twin rules|fit|whatif|eta|advise|admit|score`: a twin of one's own cluster."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.common.columns import iso, number, parse_seconds
from clustergym.common.errors import InputError, Parser, exits_on_bad_input, nearest, require
from clustergym.common.tables import table
from clustergym.common.writing import refuse_overwrite, write_json, write_text

if TYPE_CHECKING:
    from clustergym.operators.twin.ahead import Ahead
    from clustergym.operators.twin.figures import Prices

FOLDER = "a folder with log.csv (clustergym trace import), cluster.yaml (clustergym cluster import) and what "
FOLDER += "clustergym twin rules writes"
POLICY = "NAME KEY=VALUE …, or a YAML file (default: policy.yaml of the folder)"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="clustergym twin", description="A twin of one's own cluster.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    rules = commands.add_parser("rules", help="write queues and policy from what Slurm or Kueue prints")
    _rules_arguments(rules)
    words = "replay the log under the cluster's own rules, beside the logged waits"
    _folder_arguments(commands.add_parser("fit", help=words))
    words = "other rules, GPUs, quotas or capacity plans on drawn months, beside today's"
    _whatif_arguments(commands.add_parser("whatif", help=words))
    eta = commands.add_parser("eta", help="when each waiting job starts: 10, 50 and 90 %% of drawn run times")
    words = "what a policy would do now, and why; nothing is sent anywhere"
    advise = commands.add_parser("advise", help=words)
    words = "when a job that is not submitted yet would start, or what refuses it"
    admit = commands.add_parser("admit", help=words)
    printed = "what squeue, sacct -P or kubectl get workloads -o json prints of the present"
    for command in (eta, advise, admit):
        _folder_arguments(command, words=False)
        if command is admit:
            words = "an sbatch script, or a Kueue Workload (JSON or YAML)"
            command.add_argument("job", type=Path, metavar="JOB", help=words)
            words = f"{printed} (default: nothing runs)"
            command.add_argument("--queue", type=Path, metavar="FILE", help=words)
        else:
            command.add_argument("queue", type=Path, metavar="QUEUE", help=printed)
        words = "when it was printed, as 2026-03-01T12:00:00 (default: when the file was written)"
        command.add_argument("--now", metavar="TIME", help=words)
        command.add_argument("words", nargs="*", metavar="KEY=VALUE", help="as clustergym run takes them")
    for command, draws in ((eta, 49), (admit, 19)):
        words = f"of run times (default: {draws})"
        command.add_argument("--draws", type=int, default=draws, metavar="N", help=words)
        command.add_argument("--seed", type=int, default=0, help="of the drawn run times (default: 0)")
    advise.add_argument("--shadow", type=Path, metavar="FILE", help="append what it would have done to FILE")
    words = "whose past run times a script's job has (default: all)"
    admit.add_argument("--user", default="", metavar="NAME", help=words)
    score = commands.add_parser("score", help="compare what advise --shadow wrote with a later log")
    score.add_argument("folder", type=Path, metavar="FOLDER", help="the folder with the later log.csv")
    score.add_argument("shadow", type=Path, metavar="FILE", help="what advise --shadow wrote")
    score.add_argument("--json", type=Path, metavar="FILE", help="write the same figures")
    return parser


def _rules_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    words = "what scontrol show config and sacctmgr -P show assoc print; or Kueue's ClusterQueues, "
    words += "Cohorts and ResourceFlavors (JSON or YAML)"
    add("sources", type=Path, nargs="+", metavar="SRC", help=words)
    words = "writes queues.yaml and policy.yaml in it"
    add("-o", "--output", type=Path, required=True, metavar="FOLDER", help=words)
    add("--by", choices=("account", "user"), default="account", help="whether accounts or users are queues")
    add("--fair-sharing", action="store_true", help="Kueue's fair sharing is on")
    words = "replace names of Slurm's users and accounts, as trace import does with the same TEXT"
    add("--hash-users", metavar="TEXT", help=words)
    add("--force", action="store_true", help="overwrite the files")
    add("--json", type=Path, metavar="FILE", help="write what was read and guessed")


def _folder_arguments(parser: argparse.ArgumentParser, words: bool = True) -> None:
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help=FOLDER)
    if words:
        add("words", nargs="*", metavar="KEY=VALUE", help="of every run, as clustergym run takes them")
    add("--policy", metavar="POLICY", help=POLICY)
    add("--json", type=Path, metavar="FILE", help="write all figures, unrounded")


def _whatif_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help=FOLDER)
    add("words", nargs="*", metavar="KEY=VALUE", help="of every run; hydra/launcher=NAME says where they run")
    several: dict[str, Any] = {"action": "append", "default": []}
    add("--policy", metavar="POLICY", help="rules to try: NAME KEY=VALUE …, or a YAML file", **several)
    add("--add", metavar="NxTYPE", help="GPUs to add, as 16xA100", **several)
    words = "GPUs of a queue, for policies of quotas (kueue, kai, …)"
    add("--quota", metavar="QUEUE=N", help=words, **several)
    add("--limit", metavar="QUEUE=N", help="most GPUs of a queue, also under slurm-multifactor", **several)
    words = "a YAML file of capacity plans: what is rented, at what prices, by which rule"
    add("--plans", type=Path, metavar="FILE", help=words)
    add("--days", type=float, default=30.0, metavar="N", help="of each drawn month (default: 30)")
    add("--resamples", type=int, default=5, metavar="N", help="how many months are drawn (default: 5)")
    _price_arguments(parser)
    add("--out", type=Path, metavar="DIR", help="folder of the page and of the runs (default: FOLDER/whatif)")
    add("--json", type=Path, metavar="FILE", help="write all figures, unrounded")


def _price_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--price", type=float, metavar="X", help="of a GPU for an hour, used or not")
    words = "watts of a GPU of a type, for the energy; BUSY can be FILE@LIMIT, measured at a power limit"
    add("--watts", action="append", default=[], metavar="TYPE=BUSY/IDLE", help=words)
    words = "grams of CO2 of a kWh: a number, or 24 with commas, one for each hour of the day"
    add("--carbon", metavar="G", help=words)


def write_rules(options: argparse.Namespace) -> int:
    """Write files of a cluster's queues and policy, read from its scheduler's settings; return the status."""
    from clustergym.operators.twin.folder import POLICY as POLICY_FILE
    from clustergym.operators.twin.folder import QUEUES, read_rules, write_rules

    from clustergym.trace.slurm_fields import CellRules

    refuse_overwrite([options.output / name for name in (QUEUES, POLICY_FILE)], options.force)
    hashed = CellRules(salt=options.hash_users) if options.hash_users else None
    rules = read_rules(options.sources, options.by, options.fair_sharing, hashed)
    source = ", ".join(path.name for path in options.sources)
    written = write_rules(options.output, rules.queues, rules.policy, source)
    queues = list(rules.queues["queues"])
    guessed = dict(+rules.guessed)
    write_json(options.json, {"written": list(map(str, written)), "guessed": guessed, **vars(rules)})
    more = " …" * (len(queues) > 8)
    print("\n".join(f"wrote    {path}" for path in written))
    print(f"policy   {rules.policy['name']}; {len(queues)} queues: {', '.join(queues[:8])}{more}")
    for what, count in guessed.items():
        print(f"guessed  {count:,} {what}")
    return 0


def fit_past(options: argparse.Namespace) -> int:
    """Print logged waiting times beside those simulated on a twin of the cluster; return the status."""
    from clustergym.operators.twin.fit import fit, fit_text
    from clustergym.operators.twin.folder import TwinFolder

    figures = fit(TwinFolder(options.folder), options.policy, options.words)
    write_json(options.json, figures | {"command": f"clustergym twin {shlex.join(options.given)}"})
    print(fit_text(figures))
    return 0


def ask_whatif(options: argparse.Namespace) -> int:
    """Simulate what would happen on a changed cluster, and write a page of it; return the exit status."""
    from clustergym.operators.twin.folder import TwinFolder
    from clustergym.operators.twin.page import html_page, list_sections, markdown_page
    from clustergym.operators.twin.whatif import Question, ask

    words = [word for word in options.words if not word.startswith("hydra")]
    hydra_words = [word for word in options.words if word.startswith("hydra")]
    for name in ("days", "resamples"):
        require(getattr(options, name) > 0, f"--{name}", getattr(options, name), "give more than 0")
    quotas, limits = _amounts(options.quota, "--quota"), _amounts(options.limit, "--limit")
    periods = options.days, options.resamples
    changes = tuple(options.policy), tuple(options.add), quotas, limits
    question = Question(*changes, *periods, tuple(words), options.plans)
    out = options.out or options.folder / "whatif"
    figures = ask(TwinFolder(options.folder), question, _prices(options), out, hydra_words)
    command = f"clustergym twin {shlex.join(options.given)}"
    jobs = figures["jobs"]
    notes = [
        f"{options.resamples} drawn periods of {options.days:g} days, {min(jobs):,} to {max(jobs):,} jobs: "
        "weeks of the log (of one of less than eight, days by weekday). In brackets the 95 % interval over "
        "them; of a ratio the least and greatest without one of them.",
        f"Made by: {command}",
    ]
    sections = list_sections(figures)
    write_text(out / "whatif.md", markdown_page("What if", notes, sections), "--out")
    write_text(out / "whatif.html", html_page("What if", notes, sections), "--out")
    write_json(options.json, figures | {"command": command})
    print(table(sections[0].headers, sections[0].rows))
    print(f"{figures['runs']} runs, {figures['finished_before']} finished before")
    pages = f"{out / 'whatif.md'}, {out / 'whatif.html'}"
    print(f"wrote {pages}; study: {out / 'study.yaml'}, runs: {out / 'runs'}")
    return 0


def _amounts(given: Sequence[str], option: str) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, gpus = text.rpartition("=")
        if not name or not gpus.isascii() or not gpus.isdigit() or len(gpus) > 7:
            raise InputError(f"{text!r} is not QUEUE=GPUS", field=option, remedy=f"give {option} team=64")
        found[name] = float(gpus)
    return found


def _prices(options: argparse.Namespace) -> Prices:
    from clustergym.operators.twin.figures import HOURS, Prices

    watts, carbon = dict[str, tuple[float, float]](), tuple[float, ...]()
    for text in options.watts:
        gpu_type, _, both = text.partition("=")
        busy, _, idle = both.rpartition("/")
        watts[gpu_type] = (_busy_watts(gpu_type, busy), _number(idle, "--watts"))
    if options.carbon is not None:
        carbon = tuple(_number(part, "--carbon") for part in options.carbon.split(","))
        require(len(carbon) in (1, HOURS), "--carbon", options.carbon, "give one number, or 24")
        require(bool(watts), "--carbon", options.carbon, "give --watts TYPE=BUSY/IDLE too")
    return Prices(options.price, watts, carbon)


def _busy_watts(gpu_type: str, text: str) -> float:
    """Return watts, or those that a table of measurements has at a power limit: `FILE@WATTS`."""
    from clustergym.operators.twin.figures import read_power

    name, at, limit = text.rpartition("@")
    if not at:
        return _number(text, "--watts")
    found = read_power(Path(name), _number(limit, "--watts"))
    told = f"{found.watts:.0f} W by {found.networks} networks, epochs {found.slower:.2f} times as long"
    told += " as at the highest limit"
    print(f"{gpu_type} at a limit of {limit} W takes {told}; run times stay those of the log")
    return float(found.watts)


def _number(text: str, option: str) -> float:
    try:
        value = number(text)
    except ValueError as problem:
        raise InputError(str(problem), field=option, remedy="give a number from 0") from problem
    require(value >= 0, option, text, "give a number from 0")
    return value


def _ahead(options: argparse.Namespace) -> Ahead:
    from clustergym.operators.twin.ahead import Ahead
    from clustergym.operators.twin.folder import TwinFolder

    from clustergym.trace.present import read_queue

    present = read_queue(options.queue, options.now)
    return Ahead(TwinFolder(options.folder), present, options.policy, options.words)


def print_starts(options: argparse.Namespace) -> int:
    """Print when each waiting job will start, as simulated; return the exit status."""
    from clustergym.operators.twin.advice import estimate_starts

    require(options.draws > 0, "--draws", options.draws, "give more than 0")
    ahead = _ahead(options)
    present = ahead.present
    rows = estimate_starts(ahead, options.draws, options.seed)
    now = iso(round(present.now_s))
    counts = {"running": len(present.running), "waiting": len(present.waiting)}
    write_json(options.json, {"schema": "clustergym.twin-eta/1", "now": now, **counts, "jobs": rows})
    headers, keys = ["job", "user", "team", "GPUs", "type"], ("job_id", "user", "team", "gpus", "gpu_type")
    lines = [[*(str(row[key]) for key in keys), *_times(row, present.now_s)] for row in rows]
    print(table([*headers, "10 %", "50 %", "90 %"], lines, words=(0, 1, 2, 4)))
    told = f"{counts['running']} jobs run, {counts['waiting']} wait at {now}"
    print(f"{told}; {options.draws} draws of run times")
    return 0


def _times(row: Mapping[str, Any], now_s: float) -> list[str]:
    """Return the dates by which a job starts in 10, 50 and 90 % of the draws."""
    at = (row[name] for name in ("p10_s", "p50_s", "p90_s"))
    return ["later" if value is None else iso(round(now_s + value)) for value in at]


def print_advice(options: argparse.Namespace) -> int:
    """Print what the policy would do with each job now (start, stop, …) and why; return the exit status."""
    from clustergym.operators.twin.advice import advise, log_shadow

    ahead = _ahead(options)
    moment = ahead.now()
    rows = [] if moment is None else advise(moment, ahead.present)
    policy = str(ahead.config["policy"]["name"])
    if options.shadow is not None:
        log_shadow(options.shadow, rows, ahead.present, policy)
    now = iso(round(ahead.present.now_s))
    head = {"schema": "clustergym.twin-advice/1", "now": now, "policy": policy}
    write_json(options.json, head | {"jobs": rows})
    keys = ("what", "job_id", "gpus", "gpu_type", "why")
    lines = [[str(row[key]) for key in keys] for row in rows]
    print(table(["", "job", "GPUs", "type", "why"], lines, words=(0, 1, 3, 4)))
    print(f"{policy} at {now}: nothing was sent to the scheduler")
    if options.shadow is not None:
        print(f"appended to {options.shadow}")
    return 0


def print_admission(options: argparse.Namespace) -> int:
    """Print when a job that is not submitted yet would start, or what refuses it; return the exit status."""
    from clustergym.operators.twin.admit import Admission, read_request
    from clustergym.operators.twin.ahead import Ahead
    from clustergym.operators.twin.folder import TwinFolder

    from clustergym.trace.present import Present, read_queue

    require(options.draws > 0, "--draws", options.draws, "give more than 0")
    if options.queue is not None:
        present = read_queue(options.queue, options.now)
    else:
        present = Present(parse_seconds(options.now) if options.now else round(time.time()), (), ())
    request = read_request(options.job, present.now_s, options.user)
    ahead = Ahead(TwinFolder(options.folder), present, options.policy, options.words)
    found = Admission(ahead).answer(request, options.draws, options.seed)
    now = iso(round(present.now_s))
    head = {"schema": "clustergym.twin-admit/1", "now": now, "job_id": request.job.job_id}
    write_json(options.json, head | found)
    print(f"{request.job.job_id} at {now}: {found['now']['what']}, {found['now']['why']}")
    lines = []
    for row in found["requests"]:
        times = ["never"] * 3 if row["refused"] else _times(row, present.now_s)
        lines.append([str(row["gpus"]), *times, row["refused"]])
    print(table(["GPUs", "10 %", "50 %", "90 %", ""], lines, words=(4,)))
    smaller = found["sooner"]
    print("no smaller request starts sooner" if smaller is None else f"{smaller} GPUs would start sooner")
    return 0


def print_score(options: argparse.Namespace) -> int:
    """Print how a later log of the cluster compares with recorded advice; return the exit status."""
    from clustergym.operators.twin.advice import score_shadow
    from clustergym.operators.twin.fit import minutes
    from clustergym.operators.twin.folder import TwinFolder

    found = score_shadow(options.shadow, TwinFolder(options.folder).log)
    write_json(options.json, found)
    polls, advised, known = (found[key] for key in ("polls", "advised", "found"))
    print(f"{polls:,} polls advised {advised:,} starts, {known:,} of which the log has:")
    close, later = found["within_a_minute"], minutes(found["later_s"])
    print(f"{close:,} within a minute of the advice, the others {later} min later")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "rules": write_rules,
    "fit": fit_past,
    "whatif": ask_whatif,
    "eta": print_starts,
    "advise": print_advice,
    "admit": print_admission,
    "score": print_score,
}


@exits_on_bad_input
def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command of `clustergym twin`; return the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not given:
        raise InputError("no command given", remedy=f"give one of {', '.join(COMMANDS)}")
    if given[0] not in COMMANDS and not given[0].startswith("-"):
        raise InputError(f"unknown command {given[0]!r}", remedy=nearest(given[0], COMMANDS))
    # A command's `*` takes the words that stand right behind its folder alone.
    options, more = _parser().parse_known_args(given)
    if wrong := [word for word in more if word.startswith("-") or "=" not in word]:
        raise InputError(f"{wrong[0]!r} is not understood", remedy="see `clustergym twin --help`")
    if more:
        options.words = [*options.words, *more]
    options.given = given
    return COMMANDS[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
