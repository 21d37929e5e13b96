"""The data file of docs/ops.md is made from journals: what passed, what is known to fail, what was not run."""

from __future__ import annotations

from typing import Any

from conformance import proven
from conformance.nodes import Node


def test_dtypes_in_a_few_words() -> None:
    assert proven.grouped("float32 float64 bfloat16 float16 complex64 bool".split()) == "floats c64 bool"
    assert proven.grouped(["int64", "uint8", "bfloat16", "float8_e4m3fn"]) == "bf16 u8 i64 float8_e4m3fn"


def _line(state: str, samples: int = 0) -> dict[str, Any]:
    return {"state": state, "samples": samples}


def test_a_node_is_whole_if_its_journal_says_so_or_nothing_was_left_out() -> None:
    free, limited = Node("forward", "add", "float32", "fused"), Node("forward", "add", "int64", "fused")
    assert proven.is_whole(free, {}) and not proven.is_whole(limited, {})
    assert proven.is_whole(limited, {"whole": True}) and not proven.is_whole(limited, {"whole": False})


def test_journals_become_patterns_and_totals(monkeypatch: Any) -> None:
    nodes = [Node("forward", op, dtype, "fused") for op in ("add", "sub", "chalf") for dtype in ("float32", "int64")]
    monkeypatch.setattr(proven, "TESTS", {"forward": ("fused",)})
    monkeypatch.setattr(proven, "OTHERS", {})
    monkeypatch.setattr(proven.test_ops, "nodes", lambda test: nodes)
    name = "conformance/test_ops.py::test_forward[{}-{}-fused]"
    data = proven.collect({
        name.format("add", "float32"): _line("passed", 7),
        name.format("add", "int64"): _line("passed", 5),
        name.format("sub", "float32"): _line("failed", 3),
        name.format("chalf", "float32"): _line("xfailed", 2),
    })  # fmt: skip
    assert data["totals"] == [
        {
            "test": "forward",
            "mode": "fused",
            "failed": 1,
            "known": 1,
            "not run": 2,
            "passed": 2,
            "samples": 17,
            "whole": 3,
        }
    ]
    assert data["patterns"][data["entries"]["add"]] == {"forward": {"fused": "f32 i64"}}
    assert data["patterns"][data["entries"]["sub"]] == {}
    assert list(data["left"]) == ["chalf", "sub"]
    assert data["left"]["sub"] == {"forward fused: failed": "f32"}
