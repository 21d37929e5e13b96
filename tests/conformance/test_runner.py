"""The runner of the conformance suite on a suite of toys: crashes, resuming, retrying, sharding."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.__main__ import run_nodes
from conformance.conftest import in_shard
from conformance.nodes import entries, nodes
from conformance.report import failures, forget_failures, latest, lines_of, note

TOYS = """
import os, pathlib, signal
from typing import NamedTuple

class Node(NamedTuple):
    test: str
    op: str
    dtype: str
    mode: str
    id: str

HERE = pathlib.Path(__file__).parent
OPS = ("early", "exits", "between", "broken", "faults", "late")

def nodes(test):
    return [Node(test, op, "float32", "fused", f"{op}-float32-fused") for op in OPS]

def test_toy(node):
    with (HERE / "ran").open("a") as file:
        file.write(node.op + "\\n")
    if node.op == "exits":
        os._exit(9)
    if node.op == "faults":
        os.kill(os.getpid(), signal.SIGSEGV)
    assert node.op != "broken" or (HERE / "mended").exists()
"""
OPS = ("early", "exits", "between", "broken", "faults", "late")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text("from conformance.conftest import *\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_toys.py").write_text(TOYS)
    return tmp_path


def states(journal: Path) -> dict[str, str]:
    return {name.split("[")[1].split("-")[0]: line["state"] for name, line in latest(journal).items()}


def ran(suite: Path) -> list[str]:
    return (suite / "ran").read_text().split()


def test_a_crash_costs_one_node(suite: Path) -> None:
    journal = suite / "journal.jsonl"
    run_nodes(journal, [], 400, suite)
    assert states(journal) == dict(
        zip(OPS, ("passed", "crashed", "passed", "failed", "crashed", "passed"), strict=True)
    )
    texts = [line for line in failures(latest(journal)) if "CRASHED" in line]
    assert len(texts) == 2 and "ended with 9" in texts[0] and "ended with -11" in texts[1]
    assert ran(suite) == list(OPS)


def test_runs_resume_and_retry(suite: Path) -> None:
    journal = suite / "journal.jsonl"
    name = "test_toys.py::test_toy[{}-float32-fused]"
    note(journal, node=name.format("between"), state="passed")
    note(journal, node=name.format("early"), state="started")  # as a run that was stopped leaves it
    few = ["--op=early", "--op=between", "--op=broken"]
    run_nodes(journal, few, 1, suite)
    assert ran(suite) == ["early", "broken"]
    (suite / "mended").touch()
    forget_failures(journal)
    run_nodes(journal, few, 400, suite)
    assert ran(suite)[2:] == ["broken"]
    assert set(states(journal).values()) == {"passed"}


def test_every_sample_runs_again_what_ran_a_choice(suite: Path) -> None:
    journal = suite / "journal.jsonl"
    name = "test_toys.py::test_toy[{}-float32-fused]"
    for op, extra in (("early", {"whole": True}), ("between", {"whole": False}), ("late", {})):
        note(journal, node=name.format(op), state="passed", **extra)
    few = ["--op=early", "--op=between", "--op=late"]
    run_nodes(journal, few, 400, suite)
    assert not (suite / "ran").exists()
    run_nodes(journal, [*few, "--every-sample"], 400, suite)
    assert ran(suite) == ["between", "late"]


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    note(journal, node="a", state="passed")
    journal.write_text(journal.read_text() + '{"node": "b", "sta')
    assert [line["node"] for line in lines_of(journal)] == ["a"]


def test_shards_share_out_all_nodes(suite: Path) -> None:
    few = ["--op=early", "--op=between", "--op=late"]
    for part in (1, 2):
        run_nodes(suite / f"{part}.jsonl", [f"--shard={part}/2", *few], 400, suite)
    assert sorted(ran(suite)) == ["between", "early", "late"]
    assert not set(latest(suite / "1.jsonl")) & set(latest(suite / "2.jsonl"))


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_every_operator_is_in_one_shard(parts: int) -> None:
    for op in entries():
        assert sum(in_shard(op, f"{part}/{parts}") for part in range(1, parts + 1)) == 1
    ids = [(n.test, n.id) for test in ("forward", "backward") for n in nodes(test)]
    assert len(ids) == len(set(ids))
