"""Prints the table of ./dev bench: host cost, training steps and first steps, each as a ratio or an absolute figure.

python -m benchmarks [--quick] [--part host|steps|first] [--json PATH]
What is compared runs by turns in one process; the whole takes some minutes on a quiet machine, and means nothing on a busy one.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import tempfile

import rich.console
import torch

from benchmarks import steps
from benchmarks.call_cost import call_costs
from benchmarks.first_step import measure
from benchmarks.host_cost import cpu_cost, host_cost

MODELS = {"mlp": ("mlp", 0), "gpt-4": ("gpt", 4), "gpt-12": ("gpt", 12), "resnet18": ("resnet18", 0)}
PARTS = ("host", "steps", "first")


class Report:
    """The table, filled row by row."""

    def __init__(self) -> None:
        self.console = rich.console.Console(soft_wrap=True)
        self.results: dict[str, float] = {}

    def add(self, name: str, value: float, unit: str, aim: str = "") -> None:
        """One figure."""
        self.results[name] = round(value, 3)
        self.console.print(f"{name:52s} {value:10.2f} {unit:4s} {aim}", highlight=False)

    def data(self) -> dict[str, object]:
        """What the JSON file holds."""
        import jax

        return {
            "date": datetime.date.today().isoformat(),
            "device": f"{jax.devices()[0].platform} client of jaxlib {jax.lib.__version__}, {os.cpu_count()} cores",
            "against": f"CPU torch {torch.__version__} on {torch.get_num_threads()} threads in the same process, by turns",
            "results": self.results,
        }


def host(report: Report) -> None:
    """What a call costs on the host."""
    report.add("host cost per op, fused", host_cost("fused"), "us", "at most 8 us")
    report.add("host cost per op, strict", host_cost("strict"), "us")
    report.add("host cost per op, CPU torch", cpu_cost(), "us")
    for count in (10, 100, 500):
        ours, jitted = call_costs(count)
        report.add(f"compiled call of {count} inputs", ours, "us")
        report.add(f"compiled call of {count} inputs / jax.jit", ours / jitted, "x")


def training(report: Report, repeats: int) -> None:
    """Steps of every model, in every way."""
    if steps.inductor_missing():
        report.console.print(steps.inductor_missing())
    for label, (name, layers) in MODELS.items():
        with (
            tempfile.TemporaryDirectory() as folder
        ):  # a folder of Inductor's that an earlier run left half-written fails
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
            times = steps.medians(name, layers, repeats)
        report.add(f"step of {label}, CPU torch", times[steps.CPU] * 1e3, "ms")
        for way, against, aims in steps.RATIOS:
            if against in times:
                aim = f"at most {aims[label]}x" if label in aims else ""
                report.add(f"step of {label}, {way} / {against}", times[way] / times[against], "x", aim)


def first(report: Report) -> None:
    """First steps in fresh processes."""
    cold, warm = {}, {}
    for layers in (4, 12):
        cold[layers], warm[layers] = measure("gpt", layers)
        report.add(f"first step of gpt-{layers}, cold", cold[layers], "s", "under 4 s" if layers == 12 else "")
        report.add(f"first step of gpt-{layers}, warm / cold", warm[layers] / cold[layers], "x", "at most 0.1x")
    report.add("cold first step, 12 layers / 4 layers", cold[12] / cold[4], "x", "at most 1.2x")
    for layers in (4, 12, 24):
        report.add(f"first step of compiled gpt-{layers}, cold", measure("gpt", layers, "compiled", runs=1)[0], "s")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, no first-step processes")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part (may be given again)")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    parts = args.part or (PARTS[:2] if args.quick else PARTS)
    report = Report()
    report.console.print(f"torch-pjrt on {torch.get_num_threads()} CPU threads")
    if "host" in parts:
        host(report)
    if "steps" in parts:
        training(report, 3 if args.quick else 11)
    if "first" in parts:
        first(report)
    if args.json:
        args.json.write_text(json.dumps(report.data(), indent=2) + "\n")


if __name__ == "__main__":
    main()
