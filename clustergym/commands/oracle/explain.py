"""`explain`: shows a model's grids, Pareto frontier, plans, times and memory on an allocation."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.commands.oracle import common
from clustergym.common.errors import InputError
from clustergym.common.writing import write_json

SUMMARY = "show how a model trains on an allocation, and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--model", required=True, metavar="NAME", help="as in gpt3-2.6B, llama3-70B or a config.json"
    )
    parser.add_argument("--batch", type=int, metavar="N", help="samples an iteration (the model's smallest)")
    parser.add_argument("--gpus", required=True, metavar="COUNTxTYPE", help="as in 8xA40")
    common.add_cluster(parser)
    parser.add_argument("--locality", metavar="TIER", help="node, leaf, minipod or cross (the best possible)")
    common.add_calibration(parser)
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw frontiers and times (.png, .svg, .pdf)"
    )
    parser.add_argument(
        "--sequence-length", type=int, default=8192, metavar="N", help="today's transformers: tokens (8192)"
    )
    text = "today's transformers: bf16, fp8, mxfp8 or fp4 (bf16)"
    parser.add_argument("--precision", default="bf16", metavar="NAME", help=text)
    text = "today's transformers: a software stack of conf/stack, or a file (megatron-2026)"
    parser.add_argument("--stack", metavar="NAME", help=text)
    common.add_shapes(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Explain; return the exit status."""
    from clustergym.oracle.models.shape_files import is_transformer

    if is_transformer(options.model, options.shapes):
        from clustergym.commands.oracle import step_explanation

        return step_explanation.run(options)
    _check_absent(options)
    from clustergym.cluster.cluster_files import load_cluster
    from clustergym.commands.oracle import explanation_text as explain
    from clustergym.common.figures import check_figure
    from clustergym.common.tables import print_table
    from clustergym.oracle.grid import explanation
    from clustergym.oracle.grid.grid_oracle import GridOracle
    from clustergym.oracle.models.catalog import load_catalog

    common.check_target(options.json, "--json")
    common.check_target(options.plot, "--plot")
    check_figure(options.plot, "--plot")
    catalog = load_catalog(extra=options.models)
    model = common.parse_model(options.model, options.batch, catalog)
    common.check_divisible(model, catalog)
    cluster = load_cluster(options.cluster)
    where = common.parse_allocation(options.gpus, options.locality, cluster)
    oracle = GridOracle(catalog, options.calibration)
    found = explanation.explain(
        oracle, model, where.gpu_type, where.gpus, per_node=where.per_node, locality=where.locality
    )
    if options.plot is not None:
        explain.write_plot(found, options.plot)
    write_json(options.json, explain.figures(found))
    print(f"{explain.title(found)}, cluster {cluster.name}\n")
    for table in explain.tables(found):
        print_table(table)
        print()
    print(explain.verdict(found))
    common.print_written(options.plot, options.json)
    return 0


def _check_absent(options: argparse.Namespace) -> None:
    """Check that no option is given that models of the papers do not have."""
    given = {"--sequence-length": options.sequence_length != 8192, "--precision": options.precision != "bf16"}
    given |= {"--stack": options.stack is not None, "--accelerators": options.accelerators is not None}
    for option, there in given.items():
        if there:
            from clustergym.oracle.models.shape_files import transformer_names

            names = ", ".join(transformer_names()[:4])
            remedy = f"leave it out, or name one of {names}, ..."
            raise InputError(
                f"{options.model} is not one of today's transformers", field=option, remedy=remedy
            )
