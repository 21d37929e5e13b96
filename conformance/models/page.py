"""docs/models.md: the table of models, from the facts that conformance/models/judge.py found."""

from __future__ import annotations

import pathlib
from typing import Any

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "models.md"

_HEAD = """# Models

Written by `python -m conformance.models` from `docs/data/models.json`; do not edit. torchvision and timm must be installed for
their models. Each model has random weights and small inputs, is in training mode without dropout, and runs one forward and one
backward pass on the device (here: the CPU client), as it is (*eager*) and under `torch.compile(model, fullgraph=True)`.
*pass*: outputs, every gradient and every buffer are as near to a float64 run on the CPU as CPU torch in float32 is (within 4
times its error and 4e-6), no operator fell back to the CPU, and the second step compiled nothing. The number is our error over
CPU torch's, of all outputs and of all gradients together. *programs* are the XLA programs that a step made. *breaks*: graph
breaks, for a model that Dynamo has no full graph of.

"""
_COLUMNS = (
    "| model | parameters | eager forward | backward | programs | compiled forward | backward | programs | breaks |\n"
)
Facts = dict[str, Any]


def passed(facts: Facts) -> bool:
    """Whether both ways of running a model pass."""
    return "crash" not in facts and _fine(facts["eager"]) and _fine(compiled(facts))


def compiled(facts: Facts) -> Facts:
    """The compiled way: with graph breaks where a model has no full graph on the CPU either."""
    broken = facts.get("broken")
    if broken is not None and broken["cpu"] != "full graph":
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
    return [
        f"{word} {_ratio(way['forward'])}",
        f"pass {_ratio(way['backward'])}" if word == "pass" else "",
        str(way["programs"]),
    ]


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


def write(known: dict[str, Facts]) -> None:
    """The page."""
    text = _HEAD
    for title, prefixes in (("torchvision and timm", ("torchvision/", "timm/")), ("transformers", ("transformers/",))):
        names = [n for n in sorted(known) if n.startswith(prefixes)]
        good = sum(passed(known[n]) for n in names)
        text += f"## {title}: {good} of {len(names)} pass\n\n"
        text += _COLUMNS + "|" + "---|" * 9 + "\n" + "".join(_row(n, known[n]) for n in names) + "\n"
    PAGE.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
