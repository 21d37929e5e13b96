"""docs/models.md: the table of models, from the facts that conformance/models/judge.py found."""

from __future__ import annotations

import pathlib
from typing import Any

from conformance.models.cases import ULPS
from conformance.models.steps import EXACT, NUDGES
from tests.models.agreement import FLOOR, TIMES

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "models.md"

_HEAD = f"""# Models

Written by `python -m conformance.models` from `docs/data/models.json`; do not edit. torchvision and timm must be installed for
their models. Each model has random weights and small inputs, is in training mode without dropout, and runs one forward and one
backward pass on the device (here: the CPU client), as it is (*eager*) and under `torch.compile(model, fullgraph=True)`. Of a
vision model, blocks that only repeat the one before are left out.
*pass*: outputs, every gradient and every buffer are as near to a float64 run on the CPU as CPU torch in float32 is (at most
{TIMES:.0f} times its error and {FLOOR:.0e}), no operator fell back to the CPU, and the second step compiled nothing. The number
is our error over CPU torch's, of all outputs and of all gradients together. *programs* are the XLA programs that a step made.
*breaks*: graph breaks, for a model that Dynamo has no full graph of.

*float64*: some models say little in float32. The two greatest values of a maximum differ by less than rounding, or a value
before a ReLU is nearer to zero than that: then a gradient takes one of two ways, and CPU torch itself can be thousandths away
from float64. Such a model is run in float64 on the device too, where its error, which stands beside the word, must be below
{EXACT:.0e}; its float32 error is measured against the largest of CPU torch with its weights changed {NUDGES} times by at most
{ULPS} units in the last place.

"""
_COLUMNS = (
    "| model | parameters | eager forward | backward | programs | compiled forward | backward | programs | breaks |\n"
)
Facts = dict[str, Any]


def passed(facts: Facts) -> bool:
    """Whether both ways of running a model pass."""
    return "crash" not in facts and _fine(facts["eager"]) and _fine(compiled(facts))


def compiled(facts: Facts) -> Facts:
    """The compiled way: with graph breaks where a model has no full graph of CPU tensors either."""
    broken = facts.get("broken")
    if broken is not None and broken["cpu_breaks"] >= broken.get("breaks", 0) > 0:
        return dict(broken)
    return dict(facts["compile"])


def _fine(way: Facts) -> bool:
    return "error" not in way and not (way["misses"] or way["fallbacks"] or way["again"])


def _cells(way: Facts) -> list[str]:
    if "error" in way:
        return [f"error: {way['error'].splitlines()[0][:120].replace('|', '/')}", "", ""]
    bad = [*way["misses"][:2], *(f"fallback {name}" for name in way["fallbacks"])]
    bad += [f"{way['again']} programs on step 2"] if way["again"] else []
    word = "; ".join(bad).replace("|", "/") or "pass"
    passes = word == "pass"
    return [
        f"{word} {_figures(way, 'forward')}",
        f"pass {_figures(way, 'backward')}" if passes else "",
        str(way["programs"]),
    ]


def _figures(way: Facts, direction: str) -> str:
    double = f", float64 {way['double'][direction]['error']:.0e}" if "double" in way else ""
    return _ratio(way[direction]) + double


def _ratio(errors: Facts) -> str:
    return f"{errors['error'] / errors['cpu_error']:.1f}" if errors["cpu_error"] else f"{errors['error']:.0e} / 0"


def _row(name: str, facts: Facts) -> str:
    if "crash" in facts:
        cells = [facts["crash"].replace("|", "/"), *[""] * 6]
        size = ""
    else:
        way = compiled(facts)
        cells = [*_cells(facts["eager"]), *_cells(way), str(way.get("breaks", 0))]
        size = f"{facts['parameters'] / 1e6:.2f} M"
    return f"| {' | '.join([name, size, *cells])} |\n"


def _graph_breaks(known: dict[str, Facts]) -> str:
    """Which models break the graph, and why."""
    lines = [
        f"- {name}: {'; '.join(compiled(facts)['why'])}\n"
        for name, facts in sorted(known.items())
        if "crash" not in facts and compiled(facts).get("breaks")
    ]
    title = "## Graph breaks\n\nThe models' own: Dynamo leaves the graph of CPU tensors as often or more.\n\n"
    return title + "".join(lines) if lines else ""


def write(known: dict[str, Facts]) -> None:
    """The page."""
    text = _HEAD
    for title, prefixes in (("torchvision and timm", ("torchvision/", "timm/")), ("transformers", ("transformers/",))):
        names = [n for n in sorted(known) if n.startswith(prefixes)]
        good = sum(passed(known[n]) for n in names)
        text += f"## {title}: {good} of {len(names)} pass\n\n"
        text += _COLUMNS + "|" + "---|" * 9 + "\n" + "".join(_row(n, known[n]) for n in names) + "\n"
    text += _graph_breaks(known)
    PAGE.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
