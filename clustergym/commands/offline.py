"""`clustergym offline ENV`: expert, medium and random episodes of an environment as data sets for Minari."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.common.errors import InputError, Parser, exits_on_bad_input, require_known
from clustergym.common.writing import write_json

if TYPE_CHECKING:
    from clustergym.scenario.policy import Policy

QUALITIES = ("expert", "medium", "random")
EXPERT, MEDIUM = "learned checkpoint=elastic", "ares round_s=null"
MEDIUM_WEIGHTS = "learned checkpoint=prior"
"""The medium where actions score an auction."""


def _parser() -> Parser:
    summary = "Write episodes of an environment as data sets for offline learning, in Minari's format."
    parser = Parser(prog="clustergym offline", description=summary)
    parser.add_argument("env", help="environment, as elastic-16 or ClusterGym/Elastic-16-v1")
    words = "parameters of the environment; its information and rounds are those of the policies"
    parser.add_argument("parameter", nargs="*", metavar="NAME=VALUE", help=words)
    parser.add_argument(
        "--kinds",
        dest="qualities",
        nargs="+",
        default=QUALITIES,
        metavar="KIND",
        help="expert medium random (all)",
    )
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="episodes of each kind (20)")
    parser.add_argument(
        "--expert", default=EXPERT, metavar="POLICY", help=f"policy that is expert ({EXPERT})"
    )
    parser.add_argument(
        "--medium",
        metavar="POLICY",
        help=f"policy that is medium ({MEDIUM}; where actions score an auction {MEDIUM_WEIGHTS})",
    )
    where = "root of the data sets, Minari's MINARI_DATASETS_PATH (outputs/offline)"
    parser.add_argument("--out", type=Path, default=Path("outputs/offline"), metavar="DIR", help=where)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the returns of all episodes")
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym offline`: record expert, medium and random episodes as data sets for Minari."""
    options = _parser().parse_args(argv)
    from clustergym.common.progress import track_results
    from clustergym.envs.driver import driving_parameters
    from clustergym.envs.registration import make_env
    from clustergym.scenario.environments import ENVIRONMENTS
    from clustergym.scenario.registry import parse_parameters, parse_policy
    from clustergym.training.offline import (
        add_references,
        at_random,
        by_policy,
        by_weights,
        episodes,
        needs_minari,
        write,
    )

    for quality in options.qualities:
        require_known(quality, QUALITIES, "kind", "--kinds")
    if options.episodes < 1:
        raise InputError(f"{options.episodes} episodes", field="--episodes", remedy="give at least 1")
    needs_minari()
    names = {row.short_name: row.id for row in ENVIRONMENTS} | {row.id: row.id for row in ENVIRONMENTS}
    require_known(options.env, names, "environment", "ENV")
    name = names[options.env]
    words = parse_parameters(options.parameter, "env", "write NAME=VALUE")
    scores = _scores(name, words)
    medium = options.medium or (MEDIUM_WEIGHTS if scores else MEDIUM)
    told = {"expert": options.expert, "medium": medium, "random": "random actions"}
    policies = {quality: parse_policy(told[quality], f"--{quality}") for quality in ("expert", "medium")}
    # The expert's and random returns are reference scores, also where they are not recorded.
    played_qualities = policies.keys() & {"expert", *options.qualities}
    given = {"observation": "flat"} | ({} if scores else driving_parameters(policies["expert"])) | words
    for quality in () if scores else played_qualities:
        _check_driving(policies[quality], quality, given)
    ways = {
        quality: by_weights(policies[quality], f"--{quality}") if scores else by_policy(policies[quality])
        for quality in played_qualities
    } | {"random": at_random}
    short = name.rpartition("/")[2].rpartition("-v")[0].lower()
    returns, references = {}, {}
    for quality in sorted({"random", "expert"} - {*options.qualities}):
        env = make_env({"id": name, **given})
        played = track_results(
            quality, episodes(env, ways[quality], options.episodes), options.episodes, True
        )
        references[quality] = [sum(episode.rewards) for episode in played]
    for quality in dict.fromkeys(options.qualities):
        env = make_env({"id": name, **given})
        steps = episodes(env, ways[quality], options.episodes)
        played = track_results(quality, steps, options.episodes, True)
        by, data_set = told[quality], f"{short}/{quality}-v0"
        folder, returns[quality] = write(options.out, data_set, env, played, by)
        env.close()
        mean = sum(returns[quality]) / len(returns[quality])
        print(
            f"wrote {folder}/: {len(returns[quality])} episodes of {by}, mean return {mean:.4g}", flush=True
        )
    mean_of = {play: sum(found) / len(found) for play, found in (references | returns).items()}
    folders = [options.out / f"{short}/{quality}-v0" for quality in returns]
    add_references(folders, mean_of["random"], mean_of["expert"])
    write_json(options.json, returns)
    return 0


def _scores(name: str, words: Mapping[str, Any]) -> bool:
    """Return whether an environment's actions score an auction, as learned weights can do."""
    from clustergym.envs.auction_actions import NAMES
    from clustergym.envs.registration import make_env

    core: Any = make_env({"id": name, **words}).unwrapped
    return getattr(getattr(core, "parameters", None), "actions", None) in NAMES


def _check_driving(policy: Policy, quality: str, given: Mapping[str, Any]) -> None:
    """Raise an InputError if an environment does not show a policy what it would see in a simulation."""
    from clustergym.envs.driver import driving_parameters

    for key, wanted in driving_parameters(policy).items():
        if given[key] != wanted:
            message = f"policy {policy.name} has {key} {wanted}, the environment {given[key]}"
            raise InputError(message, field=f"--{quality}", remedy="give another policy, or its round_s=")


if __name__ == "__main__":
    sys.exit(main())
