"""A plan as plain data: what `--json` prints and what the page is made of. Every fact with source and date."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch_pjrt._version import __version__
from torch_pjrt.plan.chips import Fact, sources
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.ranges import Range


def as_dict(made: Plan) -> dict[str, Any]:
    """Everything, for JSON."""
    work, load = made.work, made.work.workload
    return {
        "version": __version__,
        "model": work.name,
        "workload": asdict(load),
        "unit": work.unit,
        "units_per_step": work.units,
        "work": {
            "parameters": work.parameters,
            "matmul_flops": work.flops,
            "vector_flops": work.vector,
            "memory_traffic_bytes": work.bytes,
            "kernels": work.kernels,
            "weights_bytes": work.weights,
            "gradients_bytes": work.gradients,
            "optimizer_bytes": work.states,
            "kept_for_backward_bytes": {name: p.kept for name, p in work.policies.items()},
            "workspace_bytes": {name: p.workspace for name, p in work.policies.items()},
            "cache_bytes": work.cache,
            "recorded_in_seconds": round(work.seconds, 3),
            "notes": work.notes,
        },
        "ownership": made.ownership,
        "chips": [{**_row(r), "prices": [asdict(p) for p in made.listed if p.chip == r.chip.name]} for r in made.rows],
        "cheapest": made.cheapest,
        "within_error_bar_of_cheapest": made.near_cheapest,
        "fastest": made.fastest,
        "within_error_bar_of_fastest": made.near_fastest,
        "assumptions": [asdict(a) for a in made.assumed.rows.values()],
        "sources": sources(),
        "migration": None if made.findings is None else _findings(made),
        "moving": None if made.moving is None else _moving(made),
        "owned_or_rented": [
            {
                "chip": h.chip,
                "per_hour": {o: p.per_hour for o, p in h.prices.items()},
                "owning_pays_above_utilisation": h.owning_pays_above,
            }
            for h in made.holdings
        ],
        "notes": made.notes,
    }


def _row(row: Estimate) -> dict[str, Any]:
    return {
        "chip": row.chip.name,
        "title": row.chip.title,
        "vendor": row.chip.vendor,
        "facts": {name: _fact(fact) for name, fact in row.chip.facts.items()},
        "compiles": row.compiles,
        "compiled": asdict(row.compiled) if row.compiled else None,
        "fits": row.layout is not None,
        "reason": row.reason,
        "chips": row.layout.chips if row.layout else None,
        "layout": row.layout.text if row.layout else None,
        "axes": asdict(row.layout) if row.layout else None,
        "sent_bytes": row.sent,
        "other_layouts": [
            {"layout": each.text, "step_seconds": span(step), "memory_bytes": memory}
            for each, step, memory in row.others
        ],
        "memory": {**asdict(row.memory), "total": row.memory.total} if row.memory else None,
        "method": row.method if row.step else None,
        "step_seconds": span(row.step),
        "units_per_second": span(row.rate),
        "limited_by": row.limit if row.step else None,
        "parts_seconds": row.parts,
        "attention": {
            "scores_stay_on_the_chip": row.fused_attention,
            "basis": row.attention_basis,
            "step_seconds_otherwise": span(row.other_attention),
        },
        "meets_bound": row.meets,
        "price": asdict(row.price) if row.price else None,
        "dollars_per_million": span(row.cost),
        "dollars_per_million_as_allocated": span(row.cost_allocated),
        "run_dollars": span(row.run_cost),
        "run_seconds": span(row.run_seconds),
        "joules_per_unit": span(row.energy),
        "standing": row.standing,
    }


def span(value: Range | None) -> dict[str, float] | None:
    """A range as three numbers."""
    return None if value is None else {"low": value.low, "mid": value.mid, "high": value.high}


def _fact(fact: Fact) -> dict[str, Any]:
    shown = {"value": fact.value, "text": fact.text, "source": fact.source, "date": fact.date, "note": fact.note}
    return {k: v for k, v in shown.items() if v not in ("",)}


def _moving(made: Plan) -> dict[str, Any]:
    cost = made.moving
    assert cost is not None
    return {
        "from": made.today,
        "dollars": span(cost.dollars),
        "engineer_days": span(cost.days),
        "basis": cost.basis,
        "break_even": {name: asdict(each) for name, each in made.break_even.items()},
    }


def _findings(made: Plan) -> dict[str, Any]:
    found = made.findings or []
    counts: dict[str, int] = {}
    for one in found:
        counts[str(one.severity)] = counts.get(str(one.severity), 0) + 1
    places = [{"rule": one.rule.id, "path": str(one.path), "line": one.line, "what": one.what} for one in found[:100]]
    return {"checked": made.findings_of, "by_severity": counts, "findings": places}


_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(value: float, unit: str = "") -> str:
    """Three digits and a prefix."""
    for size, letter in _STEPS:
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}{unit}".strip() if unit else f"{value / size:.3g}{letter}"
    return f"{value:.3g} {unit}".strip()


def seconds(value: float) -> str:
    """A time for people."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if value >= (size if size <= 1 else 2 * size):
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def money(value: float) -> str:
    """Dollars for people."""
    return f"${value:,.0f}" if value >= 1000 else f"${value:.3g}"
