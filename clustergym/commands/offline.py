"""`clustergym offline ENV`: expert, medium and random episodes of an environment as data sets for Minari."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from clustergym.common.arguments import Parser
from clustergym.common.errors import InputError, exits_on_bad_input, nearest
from clustergym.common.writing import write_json

KINDS = ("expert", "medium", "random")
EXPERT, MEDIUM = "learned", "ares round_s=null"


def _parser() -> Parser:
    summary = "Write episodes of an environment as data sets for offline learning, in Minari's format."
    parser = Parser(prog="clustergym offline", description=summary)
    parser.add_argument("env", help="environment, as elastic-16 or ClusterGym/Elastic-16-v1")
    words = "parameters of the environment; its information and rounds are those of the policies"
    parser.add_argument("parameter", nargs="*", metavar="NAME=VALUE", help=words)
    parser.add_argument(
        "--kinds", nargs="+", default=KINDS, metavar="KIND", help="expert medium random (all)"
    )
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="episodes of each kind (20)")
    parser.add_argument(
        "--expert", default=EXPERT, metavar="POLICY", help=f"policy that is expert ({EXPERT})"
    )
    parser.add_argument(
        "--medium", default=MEDIUM, metavar="POLICY", help=f"policy that is medium ({MEDIUM})"
    )
    where = "root of the data sets, Minari's MINARI_DATASETS_PATH (outputs/offline)"
    parser.add_argument("--out", type=Path, default=Path("outputs/offline"), metavar="DIR", help=where)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the returns of all episodes")
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Write a data set of each kind, and print where it is and its mean return."""
    options = _parser().parse_args(argv)
    from clustergym.common.progress import track_results
    from clustergym.envs.driver import driving_parameters
    from clustergym.envs.registration import make_env
    from clustergym.scenario.environments import ENVIRONMENTS
    from clustergym.scenario.registry import parse_policy
    from clustergym.training.offline import at_random, by_policy, episodes, needs_minari, write

    for data_kind in options.kinds:
        if data_kind not in KINDS:
            raise InputError(f"unknown kind {data_kind!r}", field="--kinds", remedy=nearest(data_kind, KINDS))
    if options.episodes < 1:
        raise InputError(f"{options.episodes} episodes", field="--episodes", remedy="give at least 1")
    needs_minari()
    names = {row.short_name: row.id for row in ENVIRONMENTS} | {row.id: row.id for row in ENVIRONMENTS}
    if options.env not in names:
        raise InputError(
            f"unknown environment {options.env!r}", field="ENV", remedy=nearest(options.env, names)
        )
    name = names[options.env]
    policies = {
        "expert": parse_policy(options.expert, "--expert"),
        "medium": parse_policy(options.medium, "--medium"),
    }
    given = {"observation": "flat"} | driving_parameters(policies["expert"]) | _parameters(options.parameter)
    for data_kind in policies.keys() & {*options.kinds}:
        for key, wanted in driving_parameters(policies[data_kind]).items():
            if given[key] != wanted:
                message = (
                    f"policy {policies[data_kind].name} has {key} {wanted}, the environment {given[key]}"
                )
                raise InputError(
                    message, field=f"--{data_kind}", remedy="give another policy, or its round_s="
                )
    short = name.rpartition("/")[2].rpartition("-v")[0].lower()
    returns = {}
    for data_kind in dict.fromkeys(options.kinds):
        env = make_env({"id": name, **given})
        play = at_random if data_kind == "random" else by_policy(policies[data_kind])
        played = track_results(data_kind, episodes(env, play, options.episodes), options.episodes, True)
        by = {"expert": options.expert, "medium": options.medium}.get(data_kind, "random legal actions")
        folder, returns[data_kind] = write(options.out, f"{short}/{data_kind}-v0", env, played, by)
        env.close()
        mean = sum(returns[data_kind]) / len(returns[data_kind])
        print(
            f"wrote {folder}/: {len(returns[data_kind])} episodes of {by}, mean return {mean:.4g}", flush=True
        )
    write_json(options.json, returns)
    return 0


def _parameters(words: list[str]) -> dict[str, Any]:
    """Read `NAME=VALUE` words, with YAML values."""
    import yaml

    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is not a parameter", field="env", remedy="write NAME=VALUE")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"{value!r} is not a value", field=f"env.{key}", remedy="give YAML") from error
    return found


if __name__ == "__main__":
    sys.exit(main())
