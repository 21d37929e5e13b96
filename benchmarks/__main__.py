"""Prints the table of ./dev bench: host cost, training steps and first steps, as ratios against CPU torch by turns.

python -m benchmarks [--quick] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import pathlib

import rich.console
import rich.table
import torch

from benchmarks.first_step import measure
from benchmarks.host_cost import cpu_cost, host_cost
from benchmarks.interleave import interleaved
from benchmarks.models import training_step

AIMS = {"mlp": 2.0, "gpt-4": 1.0, "gpt-12": 0.9, "resnet18": 1.3}


def step_ratio(name: str, layers: int, repeats: int) -> float:
    """Median step on the device over median step on CPU torch, by turns in one process."""
    ways = {device: training_step(name, device, layers) for device in ("cpu", "pjrt")}
    times = interleaved(ways, repeats=repeats, warmup=3)
    return times["pjrt"] / times["cpu"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, no first-step processes")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    repeats = 5 if args.quick else 15
    results: dict[str, float] = {}
    console = rich.console.Console()
    table = rich.table.Table(
        "measurement", "value", "aim", title=f"torch-pjrt on {torch.get_num_threads()} CPU threads"
    )

    def add(name: str, value: float, unit: str, aim: str) -> None:
        results[name] = value
        table.add_row(name, f"{value:.2f} {unit}", aim)

    add("host cost per op, fused", host_cost("fused"), "us", "at most 8 us")
    add("host cost per op, strict", host_cost("strict"), "us", "")
    add("host cost per op, CPU torch", cpu_cost(), "us", "")
    for name, layers, label in (
        ("mlp", 0, "mlp"),
        ("gpt", 4, "gpt-4"),
        ("gpt", 12, "gpt-12"),
        ("resnet18", 0, "resnet18"),
    ):
        add(f"step of {label} / CPU torch", step_ratio(name, layers, repeats), "x", f"at most {AIMS[label]}x")
    if not args.quick:
        cold, warm = {}, {}
        for layers in (4, 12):
            cold[layers], warm[layers] = measure("gpt", layers)
            add(f"first step of gpt-{layers}, cold", cold[layers], "s", "under 4 s" if layers == 12 else "")
            add(f"first step of gpt-{layers}, warm / cold", warm[layers] / cold[layers], "x", "at most 0.1x")
        add("cold first step, 12 layers / 4 layers", cold[12] / cold[4], "x", "at most 1.2x")
    console.print(table)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
