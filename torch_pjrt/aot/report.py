"""What compiling for a target gave: the verdict, memory against the chip's, work and time, findings. Plain values and text.

Owns the words of the report; build.py fills it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from torch_pjrt.aot.trainium import Finding
from torch_pjrt.errors import CompileError

COMPILES, TOO_LARGE, REFUSED, CLEAN, FINDINGS = "compiles", "does not fit", "refused", "lint-clean", "findings"


@dataclass(slots=True)
class Memory:
    """Bytes on the device while the program runs. reused: outputs that take the place of arguments."""

    arguments: int
    outputs: int
    temporaries: int
    code: int
    reused: int

    @property
    def total(self) -> int:
        """Most bytes held at once, as the compiler plans it."""
        return self.arguments + self.outputs - self.reused + self.temporaries + self.code


@dataclass(slots=True)
class Cost:
    """flops, bytes: of the program as written; compiler_*: what the compiler says of what it made, where it says so."""

    flops: float | None = None
    bytes: float | None = None
    compiler_flops: float | None = None
    compiler_bytes: float | None = None
    compiler_seconds: float | None = None


@dataclass(slots=True)
class Report:
    """The outcome for one model, mode and target.

    memory and cost are of one device; cost.flops of the program as written is of the whole mesh. argument_bytes are known
    before compiling, memory once the compiler has taken the program. loops: (rounds, ops per round) of blocks that the
    compiler saw once. arguments: the tensors in each argument of the executable, in order, after the packed numbers; several
    names are one stacked argument.
    """

    target: str
    mode: str
    verdict: str = REFUSED
    error: str | None = None
    where: str | None = None
    ops: int = 0
    parameters: int = 0
    memory: Memory | None = None
    argument_bytes: int | None = None
    chip_memory: int | None = None
    cost: Cost = field(default_factory=Cost)
    findings: list[Finding] = field(default_factory=list)
    trace_seconds: float = 0.0
    compile_seconds: float = 0.0
    effort: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""
    mesh: str = ""
    loops: list[tuple[int, int]] = field(default_factory=list)
    collectives: dict[str, int] = field(default_factory=dict)
    arguments: list[list[str]] = field(default_factory=list, repr=False)
    lowered: Any = field(default=None, repr=False)
    compiled: Any = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way, as far as can be known here."""
        return self.verdict in (COMPILES, CLEAN)

    def check(self) -> Report:
        """The report itself; raises CompileError unless it is ok."""
        if not self.ok:
            raise CompileError(f"{self.target}: {self.verdict}", where=self.where, detail=self.error)
        return self

    def stablehlo(self) -> str:
        """The program as StableHLO text, with the user's lines as locations. Empty when it could not be recorded."""
        return self.lowered.as_text(debug_info=True) if self.lowered is not None else ""

    def executable(self) -> bytes:
        """The compiled program in the plugin's own format. Raises CompileError when there is none."""
        from torch_pjrt.pjrt import jax_compat

        if self.compiled is None:
            raise CompileError(f"there is no executable: {self.verdict}", where=self.where, detail=self.error)
        return jax_compat.serialize_absent(self.compiled)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the program itself, for JSON."""
        skipped = ("lowered", "compiled", "arguments")
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in skipped}
        for name in ("memory", "cost"):
            facts[name] = dataclasses.asdict(facts[name]) if facts[name] is not None else None
        facts["findings"] = [dataclasses.asdict(f) for f in self.findings]
        if self.memory is not None:
            facts["memory"]["total"] = self.memory.total
        return {**facts, "ok": self.ok, "stacked_arguments": [a for a in self.arguments if len(a) > 1]}

    def json(self) -> str:
        """as_dict as one JSON object."""
        return json.dumps(self.as_dict(), indent=2)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        out = [f"{self.target}, {self.mode}: {self.verdict}" + (f" ({self.note})" if self.note else "")]
        if self.error:
            out += [f"  at {self.where}"] if self.where and self.where not in self.error else []
            out += ["  " + line for line in self.error.splitlines()[:40]]
        if self.ops:
            out.append(f"  {self.ops} ops, {self.parameters:,} parameters, recorded in {self.trace_seconds:.1f} s")
        against = f" of {size(self.chip_memory)}" if self.chip_memory else ""
        if self.memory is not None:
            m = self.memory
            out.append(
                f"  memory {size(m.total)}{against}: arguments {size(m.arguments)}, outputs {size(m.outputs)} "
                f"({size(m.reused)} in place of arguments), temporaries {size(m.temporaries)}, code {size(m.code)}"
            )
        elif self.verdict == TOO_LARGE and self.argument_bytes is not None:
            out.append(
                f"  the arguments alone (weights, optimizer state, inputs): {size(self.argument_bytes)}{against}"
            )
        c = self.cost
        if c.flops is not None:
            out.append(
                f"  {c.flops:.4g} flops as written"
                + (f", {c.compiler_flops:.4g} as compiled" if c.compiler_flops else "")
            )
        if c.compiler_seconds:
            out.append(f"  {c.compiler_seconds * 1e3:.3g} ms by the compiler's own estimate")
        if self.mesh:
            counted = ", ".join(f"{n} {name}" for name, n in sorted(self.collectives.items())) or "no collectives"
            out.append(f"  mesh {self.mesh}: memory is of one device; {counted}")
        if self.loops:
            kinds = [f"{rounds} x {ops} ops" for rounds, ops in self.loops]
            blocks = ", ".join(f"{kind} ({kinds.count(kind)} times)" for kind in dict.fromkeys(kinds))
            hint = "; without loops (--no-loops) it may need less" if self.verdict == TOO_LARGE else ""
            out.append(
                f"  given to the compiler as loops, their weights stacked{hint}: {blocks.replace(' (1 times)', '')}"
            )
        if self.compile_seconds:
            tried = f", with effort {self.effort:g} (0 is the compiler's own)" if self.effort else ""
            out.append(f"  compiled in {self.compile_seconds:.1f} s{tried}")
        places: dict[tuple[str, str, str], list[str]] = {}
        for f in self.findings:
            ops = places.setdefault((f.rule, f.text, f.where or f.scope or ""), [])
            ops += [f.op] if f.op not in ops else []
        for (rule, text, place), ops in places.items():
            out.append(f"  {rule} {text} ({', '.join(ops)})" + (f"  at {place}" if place else ""))
        return out


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "unknown"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    return ""
