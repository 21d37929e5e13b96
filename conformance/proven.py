"""What the runs have proven, as the small data file that docs/ops.md is written from: `./dev conformance --only-report --docs`.

For each entry of op_db, which dtypes passed in which mode of which test; what is left is named. Entries with the same
answer share a pattern, so that the file stays small and a change shows in a diff.
"""

from __future__ import annotations

import json
import pathlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from conformance import test_modules, test_ops, test_optimizers, test_random
from conformance.known_failures import reason_for
from conformance.nodes import TESTS, Node
from conformance.report import parts

DATA = pathlib.Path(__file__).resolve().parents[1] / "docs" / "data" / "conformance.json"
OTHERS = {"module": test_modules, "optimizer": test_optimizers, "random": test_random}
GROUPS = {
    "floats": "float32 float64 bfloat16 float16",
    "complex": "complex64 complex128",
    "ints": "uint8 int8 int16 int32 int64",
}
SHORT = {"float": "f", "bfloat": "bf", "complex": "c", "uint": "u", "int": "i"}


def short(dtype: str) -> str:
    """ "bfloat16" -> "bf16"."""
    kind = dtype.rstrip("0123456789")
    return dtype if kind not in SHORT else SHORT[kind] + dtype[len(kind) :]


def grouped(dtypes: Iterable[str]) -> str:
    """Dtypes in a few words: whole groups by their names, the rest in short."""
    left, words = set(dtypes), []
    for name, members in GROUPS.items():
        if left >= set(members.split()):
            words.append(name)
            left -= set(members.split())
    order = " ".join(GROUPS.values()).split()
    rest = sorted(left, key=lambda d: (order.index(d) if d in order else len(order), d))
    return " ".join([*words, *(short(d) for d in rest)])


def _states(lines: dict[str, dict[str, Any]]) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    found = {}
    for name, line in lines.items():
        at = parts(name)
        found[at["test"], at["op"], at["dtype"], at["mode"]] = line
    return found


def _all_nodes() -> dict[str, list[Node]]:
    tests = {test: list(test_ops.nodes(test)) for test in TESTS}
    return tests | {test: list(module.nodes(test)) for test, module in OTHERS.items()}


def _outcome(line: dict[str, Any] | None) -> str:
    if line is None:
        return "not run"
    return {"xfailed": "known", "started": "not run", "crashed": "failed"}.get(line["state"], line["state"])


def is_whole(node: Node, line: dict[str, Any]) -> bool:
    """Whether a node ran all samples of its entry. A journal of before this was noted says so of nodes without a limit."""
    return bool(line.get("whole", node.test in OTHERS or node.test == "errors" or node.limit is None))


def collect(lines: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The data file's contents."""
    states = _states(lines)
    totals: list[dict[str, Any]] = []
    passed: dict[str, dict[str, dict[str, list[str]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    left: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test, nodes in _all_nodes().items():
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for node in nodes:
            line = states.get((test, node.op, node.dtype, node.mode))
            outcome = _outcome(line)
            counted[node.mode][outcome] += 1
            counted[node.mode]["samples"] += (line or {}).get("samples", 0)
            counted[node.mode]["whole"] += outcome != "not run" and is_whole(node, line or {})
            if outcome == "passed":
                passed[node.op][test][node.mode].append(node.dtype)
            elif outcome in ("known", "failed"):
                why = reason_for(test, node.op, node.dtype, node.mode) if outcome == "known" else outcome
                left[node.op][f"{test} {node.mode}: {why}"].append(node.dtype)
        totals += [{"test": test, "mode": mode, **dict(sorted(c.items()))} for mode, c in counted.items()]
    patterns: list[dict[str, Any]] = []
    entries: dict[str, int] = {}
    for op in sorted({n.op for test in TESTS for n in test_ops.nodes(test)}):
        pattern = {t: {m: grouped(d) for m, d in modes.items()} for t, modes in passed[op].items() if t in TESTS}
        if pattern not in patterns:
            patterns.append(pattern)
        entries[op] = patterns.index(pattern)
    return {
        "torch": torch.__version__.partition("+")[0],
        "totals": totals,
        "patterns": patterns,
        "entries": entries,
        "left": {op: {why: grouped(d) for why, d in reasons.items()} for op, reasons in sorted(left.items())},
    }


def write(lines: dict[str, dict[str, Any]]) -> pathlib.Path:
    """Write the data file."""
    data = collect(lines)
    parts_ = [f"  {json.dumps(name)}: {_rows(value)}" for name, value in data.items()]
    DATA.write_text("{\n" + ",\n".join(parts_) + "\n}\n", encoding="utf-8")
    return DATA


def _rows(value: Any) -> str:
    """One line for each member."""
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"    {json.dumps(v)}" for v in value) + "\n  ]"
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n  }"
    return json.dumps(value)
