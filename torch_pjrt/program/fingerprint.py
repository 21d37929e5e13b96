"""Names a Program: a text that is the same in every process, and, for a new one, what is new about it.

The in-process key is a tuple of template ids (made by dispatch/); this module makes the stable text for the disk cache
and the explanation that torch.pjrt.explain_recompiles() prints.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_pjrt.program.program import Program

_seen: dict[tuple[str, ...], set[tuple[str, ...]]] = {}


def program_text(program: Program) -> str:
    """Everything that decides what the Program computes, as text."""
    steps = "\n".join(f"{template.text} <- {operands}" for template, operands in program.steps)
    return f"{program.in_specs}\n{steps}\n{program.outputs}\n{program.donate}"


def changes(program: Program, where: Sequence[str | None]) -> str:
    """Why this Program was not known: first of its ops, other operands than before, or other results wanted."""
    ops = tuple(template.row.name for template, _ in program.steps)
    operands = tuple(f"{list(t.avals)} -> {[o.spec for o in t.outs]}" for t, _ in program.steps)
    known = _seen.setdefault(ops, set())
    line = next((w for w in where if w), "autograd")
    short = ", ".join(dict.fromkeys(name.removeprefix("aten::") for name in ops[:4]))
    what = f"{len(ops)} ops ({short}{', ...' if len(ops) > 4 else ''}) at {line}"
    if not known:
        known.add(operands)
        return f"first time: {what}"
    if operands in known:
        return f"other results kept alive, or other constants: {what}"
    last = next(iter(known))
    index = next((i for i, (a, b) in enumerate(zip(last, operands, strict=True)) if a != b), 0)
    known.add(operands)
    return f"new shape or dtype: {what}: {ops[index]} has {operands[index]}, before {last[index]}"


def forget() -> None:
    """Explain the next programs as if none had been seen."""
    _seen.clear()
