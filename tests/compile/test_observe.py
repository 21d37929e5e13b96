"""What is shown of compiled graphs: the dump folder, TORCH_LOGS, TORCH_TRACE."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

from torch_pjrt.config import child_environment, settings
from torch_pjrt.dispatch.install import forget_programs


def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).relu().sum()


def test_dump_has_graphs_and_programs_with_lines(tmp_path: pathlib.Path) -> None:
    forget_programs()
    line = scaled.__code__.co_firstlineno + 1
    with settings.override(dump=str(tmp_path), cache_dir="off"):
        w = torch.ones(4, 3, device="pjrt", requires_grad=True)
        torch.compile(scaled)(torch.ones(2, 4, device="pjrt"), w).backward()
    graphs = {p.name.split("_")[1]: p.read_text() for p in tmp_path.glob("graph_*.fx.txt")}
    assert set(graphs) == {"forward", "backward"}
    for kind, op in (("forward", "aten.relu"), ("backward", "aten.mm")):
        head, programs, *body = graphs[kind].splitlines()
        assert f"{__file__}:{line} in scaled" in head
        assert op in "\n".join(body)
        (key,) = programs.removeprefix("# programs: ").split(", ")
        assert f"mm@test_observe.py:{line}" in (tmp_path / f"{key}.stablehlo.mlir").read_text()
        assert "HloModule" in (tmp_path / f"{key}.hlo.txt").read_text()
        assert f"{__file__}:{line} in scaled" in (tmp_path / f"{key}.lines.txt").read_text()


def test_compile_errors_name_the_line_in_the_graph() -> None:
    from torch_pjrt.errors import CompileError

    compiled = torch.compile(scaled, backend="pjrt", options={"xla_options": {"xla_no_such_option": True}})
    with pytest.raises(CompileError, match=f"test_observe.py:{scaled.__code__.co_firstlineno + 1} in scaled"):
        compiled(torch.ones(2, 4, device="pjrt"), torch.ones(4, 3, device="pjrt"))


PROGRAM = """
    import torch
    def scaled(x):
        return (x * 2).softmax(-1)
    compiled = torch.compile(scaled, dynamic=True)
    for n in (3, 4):
        compiled(torch.ones(n, 4, device="pjrt"))
"""


def run(cache: pathlib.Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run PROGRAM in a process of its own."""
    environment = child_environment({"TORCH_PJRT_CACHE_DIR": str(cache), **variables})
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, env=environment, timeout=600
    )
    assert out.returncode == 0, out.stderr
    return out


@pytest.mark.slow
def test_torch_logs_and_trace(tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace"
    text = run(tmp_path / "cache", TORCH_LOGS="+torch_pjrt", TORCH_TRACE=str(trace)).stderr
    assert "captured the inference graph" in text and "x has size [4, 4], before [3, 4]" in text
    assert "compiled" in text
    (log,) = trace.glob("*.log")
    records = [json.loads(line.split("] ", 1)[1]) for line in log.read_text().splitlines() if "torch_pjrt_" in line]
    names = [r["artifact"]["name"] for r in records if "artifact" in r]
    assert sum(n.endswith("_stablehlo") for n in names) == sum(n.endswith("_hlo") for n in names) == 2
    assert sum(n.endswith("_cause") for n in names) == 2
    assert all(r["frame_id"] == 0 for r in records)
