"""The page's drawings, as SVG: cost against time, memory bars, and the roofline of one chip. Colours come from the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.memory import PARTS
from torch_pjrt.plan.report_data import money, seconds, short

W, H, LEFT, BOTTOM, TOP, RIGHT = 720, 420, 70, 48, 14, 20


class _Log:
    """A logarithmic axis over pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = math.log10(min(values)), math.log10(max(values))
        margin = max(0.06 * (self.high - self.low), 0.05)
        self.low, self.high = self.low - margin, self.high + margin
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """1, 2 and 5 of each decade, thinned."""
        found = [m * 10.0**e for e in range(math.floor(self.low), math.ceil(self.high) + 1) for m in (1, 2, 5)]
        inside = [v for v in found if self.low <= math.log10(v) <= self.high]
        tens = [v for v in inside if abs(math.log10(v) - round(math.log10(v))) < 1e-9]
        return tens if len(inside) > 9 and len(tens) > 1 else inside


def _frame(
    x: _Log, y: _Log, x_name: str, y_name: str, x_text: Callable[[float], str], y_text: Callable[[float], str]
) -> str:
    out = []
    for v in x.ticks():
        out.append(f'<line class="grid" x1="{x(v):.1f}" x2="{x(v):.1f}" y1="{TOP}" y2="{H - BOTTOM}"/>')
        out.append(f'<text x="{x(v):.1f}" y="{H - BOTTOM + 16}" text-anchor="middle">{x_text(v)}</text>')
    for v in y.ticks():
        out.append(f'<line class="grid" x1="{LEFT}" x2="{W - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{y_text(v)}</text>')
    out.append(
        f'<text class="axis" x="{(LEFT + W - RIGHT) / 2}" y="{H - 8}" text-anchor="middle">{escape(x_name)}</text>'
    )
    middle = (TOP + H - BOTTOM) / 2
    out.append(
        f'<text class="axis" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>'
    )
    return "".join(out)


def _svg(name: str, body: str, height: int = H) -> str:
    return f'<svg viewBox="0 0 {W} {height}" role="img" aria-label="{escape(name)}"><title>{escape(name)}</title>{body}</svg>'


def cost_against_time(made: Plan) -> str:
    """Each priced chip as a point with both ranges."""
    rows = [r for r in made.rows if r.step and r.cost]
    if not rows:
        return "<p>No chip that fits has a price.</p>"
    x = _Log([v for r in rows if r.step for v in (r.step.low, r.step.high)], LEFT, W - RIGHT)
    y = _Log([v for r in rows if r.cost for v in (r.cost.low, r.cost.high)], H - BOTTOM, TOP)
    body = _frame(x, y, "time of a step", f"dollars for a million {made.work.unit}s", seconds, money)
    marks = []
    placed: list[tuple[float, float]] = []
    for r in sorted(rows, key=lambda r: r.cost.mid if r.cost else 0):
        assert r.step is not None and r.cost is not None
        a, b = x(r.step.mid), y(r.cost.mid)
        best = ' class="best"' if r.chip.name == made.cheapest else ""
        tip = f"{r.chip.title}: {_span(r, 'step')}, {_span(r, 'cost')}"
        label = b - 7
        while any(abs(label - q) < 12 and abs(a - p) < 70 for p, q in placed) and label > TOP + 10:
            label -= 12
        placed.append((a, label))
        marks.append(
            f"<g{best}><title>{escape(tip)}</title>"
            f'<line x1="{x(r.step.low):.1f}" x2="{x(r.step.high):.1f}" y1="{b:.1f}" y2="{b:.1f}"/>'
            f'<line x1="{a:.1f}" x2="{a:.1f}" y1="{y(r.cost.low):.1f}" y2="{y(r.cost.high):.1f}"/>'
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4"/>'
            f'<text x="{a + 6:.1f}" y="{label:.1f}">{escape(r.chip.name)}</text></g>'
        )
    return _svg("Cost against time, with ranges", body + f'<g class="marks">{"".join(marks)}</g>')


def _span(row: Estimate, what: str) -> str:
    value = row.step if what == "step" else row.cost
    form = seconds if what == "step" else money
    return f"{form(value.low)} to {form(value.high)}" if value else ""


def memory_bars(made: Plan) -> str:
    """What is on each chip, as a share of its memory; the line is what can be used."""
    rows = [r for r in made.rows if r.memory and r.memory.capacity]
    step, top = 22, 34
    height = top + step * len(rows) + 24
    widest = max([1.0, *(min(1.3, r.memory.total / r.memory.capacity) for r in rows if r.memory)])
    scale = (W - 150 - 170) / widest
    out = []
    shown = [i for i, name in enumerate(PARTS) if any(getattr(r.memory, name) for r in rows)]
    for k, i in enumerate(shown):
        name = PARTS[i]
        out.append(f'<rect class="m{i}" x="{150 + k * 92}" y="6" width="12" height="12"/>')
        out.append(f'<text x="{166 + k * 92}" y="16">{name if name != "states" else "optimizer"}</text>')
    for k, r in enumerate(rows):
        assert r.memory is not None
        y, at = top + k * step, 150.0
        number = f"{r.layout.chips} x " if r.layout and r.layout.chips > 1 else ""
        out.append(f'<text x="144" y="{y + 12}" text-anchor="end">{number}{escape(r.chip.name)}</text>')
        for i, name in enumerate(PARTS):
            width = getattr(r.memory, name) / r.memory.capacity * scale
            width = max(0.0, min(width, 150 + widest * scale - at))
            text = f"{r.chip.title}, {name}: {short(getattr(r.memory, name), 'B')}"
            out.append(
                f'<rect class="m{i}" x="{at:.1f}" y="{y}" width="{width:.1f}" height="15"><title>{escape(text)}</title></rect>'
            )
            at += width
        over = "" if r.memory.fits else " (too large)"
        text = f"{r.memory.total / 1e9:,.0f} of {r.memory.capacity / 1e9:,.0f} GB{over}"
        out.append(f'<text class="small" x="{max(at, 150 + scale) + 5:.1f}" y="{y + 12}">{text}</text>')
    for share, kind in ((1.0, "full"), (made.assumed.low("memory"), "usable")):
        x = 150 + share * scale
        out.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 6}" y2="{height - 22}"/>')
    out.append(
        f'<text class="small" x="{150 + scale:.1f}" y="{height - 8}" text-anchor="middle">all of the memory</text>'
    )
    return _svg("Memory on each chip against its size", "".join(out), height)


def roofline(made: Plan, row: Estimate, assumed: Assumptions) -> str:
    """The model's kernels under one chip's roof: operations for each byte, and the rate that this allows."""
    peak, rate = row.chip.fact("bfloat16").value, row.chip.fact("bandwidth").value
    kernels = sorted(
        (g for g in made.work.groups if g.flops and g.bytes), key=lambda g: -(g.flops + g.bytes) * g.count
    )[:40]
    if not peak or not rate or not kernels:
        return "<p>No kernel with products, or the chip's rates are not known.</p>"
    knees = [peak * a / (rate * b) for a, b in ((1, 1), (assumed.low("matmul"), assumed.low("bandwidth")))]
    x = _Log([*(g.flops / g.bytes for g in kernels), *(k / 3 for k in knees)], LEFT, W - RIGHT)
    lows = [min(peak * assumed.low("matmul"), g.flops / g.bytes * rate * assumed.low("bandwidth")) for g in kernels]
    y = _Log([*lows, peak * 1.1], H - BOTTOM, TOP)
    body = _frame(x, y, "operations for each byte of memory traffic", "operations a second", short, short)
    for best, kind in ((True, "roof"), (False, "roof low")):
        pick = assumed.high if best else assumed.low
        p, b = (peak, rate) if best else (peak * pick("matmul"), rate * pick("bandwidth"))
        left, knee, right = 10**x.low, p / b, 10**x.high
        low = max(left * b, 10**y.low)
        points = [(low / b, low), (min(knee, right), min(p, right * b)), (right, min(p, right * b))]
        path = " ".join(f"{x(u):.1f},{y(v):.1f}" for u, v in points)
        body += f'<polyline class="{kind}" points="{path}"/>'
    total = sum(g.flops * g.count for g in kernels)
    for g in kernels:
        u = g.flops / g.bytes
        v = min(peak * assumed.high("matmul"), u * rate * assumed.high("bandwidth"))
        size = 3 + 10 * math.sqrt(g.flops * g.count / total)
        tip = f"{g.count} x {g.name} ({g.phase}): {short(g.flops, 'flop')}, {short(g.bytes, 'B')} each"
        place = f'cx="{x(u):.1f}" cy="{y(v):.1f}" r="{size:.1f}"'
        body += f'<circle class="kernel {g.phase}" {place}><title>{escape(tip)}</title></circle>'
    return _svg(f"Roofline of {row.chip.title}", body)
