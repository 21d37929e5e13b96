"""`torch-pjrt plan`: its options. What it does is in plan_run.py, which is imported when it is asked for."""

from __future__ import annotations

__all__ = ["plan"]

import pathlib
import sys
from typing import Any

import click

from .plan_words import chips, first, models

_KINDS, _DTYPES = ("train", "prefill", "decode", "batch-infer"), ("bfloat16", "float16", "float32", "float8")
_POLICIES = ("auto", "none", "selective", "full")
_ENGINES = ("skypilot", "k8s", "ray")
_OWNERSHIPS = ("on-demand", "spot", "reserved", "owned")


@click.command()
@click.option(
    "--model", required=True, type=models(), help="A built-in name, a Hugging Face config.json, or pkg.module:function."
)
@click.option(
    "--workload",
    "kind",
    type=first(*_KINDS),
    default="train",
    show_default=True,
    help="train, prefill, decode or batch-infer.",
)
@click.option("--batch", default=1, show_default=True, help="Sequences, images or samples of a step, over all chips.")
@click.option("--sequence", default=1024, show_default=True, help="Tokens of a sequence; in decode, of the cache.")
@click.option(
    "--dtype", type=first(*_DTYPES), default="bfloat16", show_default=True, help="bfloat16, float16, float32 or float8."
)
@click.option(
    "--master",
    type=first(*_DTYPES[:3]),
    default="float32",
    show_default=True,
    help="Dtype in which training keeps the weights.",
)
@click.option(
    "--recompute",
    type=first(*_POLICIES),
    is_flag=False,
    flag_value="full",
    default="auto",
    show_default=True,
    metavar="[auto|none|selective|full]",
    help="In training, what is computed again in the backward pass; auto: what is fastest and fits.",
)
@click.option("--accumulate", default=1, show_default=True, help="In training, parts in which the batch is taken.")
@click.option(
    "--tokens", "--samples", "quantity", help="How much to process in all, as 1e9 or 15T; gives cost of a run."
)
@click.option("--deadline", help="All of it within this time, as 12h or 3d.")
@click.option("--latency", help="Each step within this time, as 50ms.")
@click.option(
    "--chips", type=chips(several=True), default="all", show_default=True, help="Names with commas between, or all."
)
@click.option("--count", type=int, help="Just so many chips, not as few as do.")
@click.option(
    "--layout", metavar="AXIS=N,...", help="Sizes of data, tensor, pipeline, context, expert, zero (0-3), microbatches."
)
@click.option(
    "--prices", type=click.Path(), help="Your own price list (TOML or JSON); its form is that of plan/prices.toml."
)
@click.option("--ownership", type=click.Choice(_OWNERSHIPS), default="on-demand", show_default=True)
@click.option(
    "--utilisation", help="Share of allocated time in use, for cost as allocated. The same as --assume utilisation=."
)
@click.option("--assume", multiple=True, metavar="NAME=LOW..HIGH", help="Another value for an assumption (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Write one page with tables and plots.")
@click.option("--compile", "compiles", is_flag=True, help="Ask the real compilers that are installed here.")
@click.option(
    "--check",
    "checked",
    type=click.Path(),
    metavar="PATH",
    help="Also list what ties this code to one chip; see torch-pjrt check.",
)
@click.option(
    "--from", "today", type=chips(), metavar="CHIP", help="The chip you use now: gives what leaving it costs and saves."
)
@click.option(
    "--migration-cost",
    "moving",
    metavar="COST",
    help="With --from: dollars (25000, 25k) or engineer-days (15d), in place of the estimate from the findings of --check.",
)
@click.option("--measure", is_flag=True, help="Run it here with random weights, and keep the time as a calibration.")
@click.option("--calibration", type=click.Path(), metavar="FILE", help="Where measured runs are kept.")
@click.option("--emit", type=click.Choice(_ENGINES), help="Write a job file for the cheapest chip, or that of --for.")
@click.option("--for", "wanted", type=chips(), metavar="CHIP", help="With --emit: for this chip.")
@click.option("--run", "command", default="", metavar="CMD", help="With --emit: the command that the job runs.")
@click.option(
    "--output", "-o", type=click.Path(), metavar="FILE", help="With --emit: where to; without it, standard output."
)
@click.option(
    "--json-schema",
    is_flag=True,
    help="Print the schema of what --json prints.",
    is_eager=True,
    expose_value=False,
    callback=lambda context, option, value: _schema(context) if value else None,
)
@click.option(
    "--list",
    "as_list",
    is_flag=True,
    help="List models, chips and assumptions.",
    is_eager=True,
    expose_value=False,
    callback=lambda context, option, value: _list(context) if value else None,
)
def plan(**options: Any) -> None:
    """Compare chips for a model and a workload: time, memory, number of chips, cost, energy, and what limits each.

    Nothing is run (but with --measure) and no weights are made. Every figure is a range; where ranges overlap there is
    no rank. Exits with 0, with 1 when no chip does it, 2 for a wrong request, 3 when a package that it needs is missing
    or for an error of this program.

    \b
        torch-pjrt plan --model llama3-8b --workload train --batch 64 --sequence 8192 --tokens 1e12
        torch-pjrt plan --model config.json --workload decode --batch 32 --sequence 4096 --latency 50ms
        torch-pjrt plan --model my.package:make --chips h100,tpu-v6e,trn2 --html report.html
        torch-pjrt plan --model gpt2 --batch 32 --emit skypilot --run "python train.py" -o job.yaml
    """
    from . import plan_run
    from .main import _internal_errors

    sys.exit(_internal_errors(plan_run.run, **options))


def _schema(context: click.Context) -> None:
    click.echo((pathlib.Path(__file__).parents[1] / "plan" / "plan.schema.json").read_text(encoding="utf-8"), nl=False)
    context.exit()


def _list(context: click.Context) -> None:
    from . import plan_run

    plan_run.show_list()
    context.exit()
