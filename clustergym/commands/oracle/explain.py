"""`explain`: shows a model's plans, times and memory on an allocation, by the stack that it has there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from clustergym.commands.oracle import common
from clustergym.common.errors import InputError
from clustergym.common.writing import write_json

if TYPE_CHECKING:
    from clustergym.oracle.models.model_spec import ModelClass
    from clustergym.oracle.stacks.stack_oracle import StackOracle

SUMMARY = "show how a model trains on an allocation, and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym oracle explain` to a parser."""
    parser.add_argument(
        "--model", required=True, metavar="NAME", help="as in gpt3-2.6B, llama3-70B or a config.json"
    )
    parser.add_argument("--batch", type=int, metavar="N", help="samples an iteration (the model's smallest)")
    parser.add_argument("--gpus", required=True, metavar="COUNTxTYPE", help="as in 8xA40")
    common.add_cluster(parser)
    parser.add_argument("--locality", metavar="TIER", help="node, leaf, minipod or cross (the best possible)")
    parser.add_argument("--models", metavar="PATH", help="a folder of further model files, or one file")
    text = "alpa-2022: draw frontiers and times (.png, .svg, .pdf)"
    parser.add_argument("--plot", type=Path, metavar="FILE", help=text)
    text = "stacks of transformers: tokens (the model's own, or 8192)"
    parser.add_argument("--sequence-length", type=int, metavar="N", help=text)
    text = "stacks of transformers: bf16, fp8, mxfp8 or fp4 (bf16)"
    parser.add_argument("--precision", metavar="NAME", help=text)
    text = "a software stack of conf/stack, or a file (the one measured on the model and the GPUs)"
    parser.add_argument("--stack", metavar="NAME", help=text)
    common.add_shapes(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run `clustergym oracle explain`: print how an iteration time comes about; return the exit status."""
    from clustergym.common.figures import check_figure
    from clustergym.oracle.models.shape_files import is_transformer

    common.check_target(options.json, "--json")
    common.check_target(options.plot, "--plot")
    check_figure(options.plot, "--plot")
    if is_transformer(options.model, options.shapes):
        from clustergym.commands.oracle import step_explanation

        return step_explanation.run(options)
    return _explain_model(options)


def _explain_model(options: argparse.Namespace) -> int:
    """Explain the iteration time of a model of the catalogue on a cluster; return the exit status."""
    from clustergym.cluster.cluster_files import load_cluster
    from clustergym.commands.oracle import step_explanation
    from clustergym.oracle.models.catalog import load_catalog
    from clustergym.oracle.stacks.stack_oracle import AUTO, StackOracle, transformer_of

    catalog = load_catalog(extra=options.models)
    model = common.parse_model(options.model, options.batch, catalog)
    cluster = load_cluster(options.cluster)
    where = common.parse_allocation(options.gpus, options.locality, cluster)
    oracle = StackOracle(catalog, options.stack or AUTO)
    column = cluster.gpu_types.index(where.gpu_type.name)
    chosen = oracle.choose(model, cluster.groups[column])
    common.print_notes([chosen.extended])
    if not chosen.stack.of_steps:
        _check_absent(options, chosen.stack.name)
        return _explain_operators(options, oracle, model, where, cluster.name)
    cell = oracle.cell(chosen.stack, model, cluster, column)
    _, length = transformer_of(catalog.get(model))
    options.batch, options.sequence_length = model.global_batch, options.sequence_length or length
    options.locality = None
    machine = cell.machines[where.locality]
    return step_explanation.explain(options, cell.shape, machine, where.gpus, chosen.stack)


def _explain_operators(
    options: argparse.Namespace,
    oracle: StackOracle,
    model: ModelClass,
    where: common.Allocation,
    cluster: str,
) -> int:
    from clustergym.commands.oracle import explanation_text as explain
    from clustergym.common.tables import print_table
    from clustergym.oracle.grid import explanation

    common.check_divisible(model, oracle.catalog)
    found = explanation.explain(
        oracle.operators, model, where.gpu_type, where.gpus, per_node=where.per_node, locality=where.locality
    )
    if options.plot is not None:
        explain.write_plot(found, options.plot)
    write_json(options.json, explain.figures(found))
    print(f"{explain.title(found)}, cluster {cluster}\n")
    for table in explain.tables(found):
        print_table(table)
        print()
    print(explain.verdict(found))
    common.print_written(options.plot, options.json)
    return 0


def _check_absent(options: argparse.Namespace, stack: str) -> None:
    """Raise an InputError if an option is given that only stacks of transformers have."""
    for option in ("sequence_length", "precision", "accelerators"):
        if getattr(options, option) is not None:
            message = f"is not for {options.model} with the stack {stack}"
            remedy = "leave it out, or name a stack of transformers with --stack"
            raise InputError(message, field=f"--{option.replace('_', '-')}", remedy=remedy)
