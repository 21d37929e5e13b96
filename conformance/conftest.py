"""Options of the conformance suite, what is left to run, and the journal of results (one JSON line each)."""

from __future__ import annotations

import os
import pathlib
import warnings
import zlib
from typing import Any

import pytest

from conformance.report import lines_of, note

FOLDER = pathlib.Path(__file__).resolve().parents[1] / ".conformance"
os.environ.setdefault("TORCH_PJRT_CACHE_DIR", str(FOLDER / "programs"))
os.environ.setdefault("TORCH_PJRT_CPU_FALLBACK", "allow")
os.environ.setdefault("TORCH_PJRT_RECOMPILE_LIMIT", "0")
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--journal", default="", help="file of results; nodes in it are not run again")
    group.addoption("--shard", default="1/1", help="which part of the operators: i/n, from 1/n to n/n")
    group.addoption("--at-most", type=int, default=0, help="run this many nodes, then stop (the runner starts anew)")
    group.addoption("--every-sample", action="store_true", help="all samples, also of nodes that ran a choice of them")
    for name in ("test", "op", "dtype", "mode"):
        group.addoption(f"--{name}", action="append", default=[], help=f"only this {name} (may be repeated)")


def _finished(config: Any) -> set[str]:
    """The nodes that need not run again: those in the journal, or those in it that ran all samples."""
    journal = config.getoption("journal")
    lines = lines_of(pathlib.Path(journal)) if journal else []
    ended = (line for line in lines if line["state"] != "started")
    every_sample = config.getoption("every_sample")
    return {line["node"] for line in ended if not every_sample or line.get("whole") or line["state"] == "crashed"}


def _chosen(node: Any, config: Any) -> bool:
    options = {name: config.getoption(name) for name in ("test", "op", "dtype", "mode")}
    return all(not allowed or getattr(node, name) in allowed for name, allowed in options.items())


def in_shard(op: str, shard: str) -> bool:
    """Whether an operator is in shard "i/n". Whole operators, since nodes of one share compiled programs."""
    part, parts = map(int, shard.split("/"))
    return zlib.crc32(op.encode()) % parts == part - 1


def pytest_generate_tests(metafunc: Any) -> None:
    """Give each test over op_db this shard's nodes that the options want and the journal does not have."""
    if "node" not in metafunc.fixturenames:
        return
    config = metafunc.config
    wanted = [n for n in metafunc.module.nodes(metafunc.function.__name__.removeprefix("test_")) if _chosen(n, config)]
    done = _finished(config)
    prefix = f"conformance/{metafunc.module.__name__.rsplit('.', 1)[-1]}.py::{metafunc.function.__name__}"
    ours = (n for n in wanted if in_shard(n.op, config.getoption("shard")))
    left = [n for n in ours if f"{prefix}[{n.id}]" not in done]
    metafunc.parametrize("node", [pytest.param(n, id=n.id) for n in left])


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what the journal has and tests left without nodes; keep --at-most of the rest."""
    done = _finished(config)
    left = [item for item in items if item.nodeid not in done and "NOTSET" not in item.nodeid]
    items[:] = left[: config.getoption("at_most") or None]


def _note(config: Any, **line: Any) -> None:
    journal = config.getoption("journal")
    if journal:
        note(pathlib.Path(journal), **line)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any) -> Any:
    report = (yield).get_result()
    if report.when == "setup" and report.passed:
        _note(item.config, node=item.nodeid, state="started")
    elif report.when == "call":
        state = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        text = "" if report.passed else str(getattr(report, "wasxfail", "") or report.longrepr)[:4000]
        extra = dict(report.user_properties) | ({"whole": True} if item.config.getoption("every_sample") else {})
        _note(item.config, node=item.nodeid, state=state, seconds=round(report.duration, 2), text=text, **extra)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """OpInfo's samples make torch warn a lot; programs are dropped so that memory stays bounded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    from torch_pjrt.dispatch.install import forget_programs

    forget_programs()
