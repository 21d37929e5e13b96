"""A second process takes traces and executables from the first: by PyTorch's caches, its artifacts, and whole functions."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from torch_pjrt.config import child_environment

MODULE = """
import json, sys, torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x):
        return nn.functional.dropout(self.last(self.norm(self.first(x)).relu()), 0.25)

def train(**named):
    torch.manual_seed(0)
    model = Model().to("pjrt")
    step = torch.compile(model, **named)
    out = []
    for rows in (3, 3, 5):
        loss = step(torch.ones(rows, 4, device="pjrt")).square().sum()
        loss.backward()
        out += [loss.item(), model.first.weight.grad.sum().item(), model.norm.running_mean.sum().item()]
        model.zero_grad()
    return out

def report(values):
    stats, seen = torch.pjrt.stats(), torch._dynamo.utils.counters
    names = ("trace_hits", "trace_misses", "trace_bypasses", "compiles")
    print(json.dumps({"values": values, "frames": seen["frames"]["total"], **{n: stats[n] for n in names}}))
"""


@pytest.fixture
def run(tmp_path: pathlib.Path):  # type: ignore[no-untyped-def]
    """Run a program beside MODULE in a process of its own; what it reports."""
    (tmp_path / "program.py").write_text(MODULE)

    def process(text: str, cache: str = "cache", **variables: str) -> dict[str, object]:
        environment = child_environment(
            {
                "TORCH_PJRT_CACHE_DIR": str(tmp_path / cache / "executables"),
                "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / cache / "traces"),
                "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
                **variables,
            }
        )
        command = [sys.executable, "-c", "from program import *\n" + text]
        out = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=900)
        assert out.returncode == 0, out.stderr
        return dict(json.loads(out.stdout.splitlines()[-1]))

    return process


def test_a_second_process_traces_and_compiles_nothing(run) -> None:  # type: ignore[no-untyped-def]
    first, second = (run("report(train())") for _ in range(2))
    assert first["trace_misses"] == 2 and first["trace_hits"] == 0
    assert second["trace_hits"] == 2 and second["trace_misses"] == second["trace_bypasses"] == second["compiles"] == 0
    assert second["values"] == first["values"]


@pytest.mark.slow
def test_artifacts_carry_traces(run) -> None:  # type: ignore[no-untyped-def]
    first = run("v = train(); open('saved', 'wb').write(torch.compiler.save_cache_artifacts()[0]); report(v)")
    second = run("torch.compiler.load_cache_artifacts(open('saved', 'rb').read()); report(train())", "elsewhere")
    assert second["trace_hits"] == 2 and second["values"] == first["values"]
    assert second["compiles"] < first["compiles"]  # eager programs are not among the artifacts


@pytest.mark.slow
def test_whole_functions_by_caching_precompile(run) -> None:  # type: ignore[no-untyped-def]
    on = {"TORCH_CACHING_PRECOMPILE": "1"}
    first = run("v = train(); torch.compiler.save_cache_artifacts(); report(v)", **on)
    second = run("report(train())", **on)
    assert first["frames"] == 2 and second["frames"] == 0  # Dynamo traced nothing
    assert second["trace_hits"] == 2 and second["trace_misses"] == second["compiles"] == 0
    assert second["values"] == first["values"]
    other = run("report(train(backend='pjrt', options={'recompute': False}))", **on)
    assert other["frames"] == 2 and other["trace_hits"] == 0 and other["values"] == first["values"]


@pytest.mark.slow
def test_processes_that_write_at_once(run) -> None:  # type: ignore[no-untyped-def]
    text = (
        "import subprocess\n"
        "again = [sys.executable, '-c', 'from program import *; report(train())']\n"
        "children = [subprocess.Popen(again, stdout=subprocess.PIPE, text=True) for _ in range(3)]\n"
        "outs = [json.loads(c.communicate()[0].splitlines()[-1]) for c in children]\n"
        "assert all(o['values'] == outs[0]['values'] for o in outs)\n"
        "report(train())"
    )
    assert run(text)["trace_hits"] == 2


@pytest.mark.slow
def test_a_compiled_function_in_a_file(run) -> None:  # type: ignore[no-untyped-def]
    start = "torch.manual_seed(0); model = Model().to('pjrt').eval(); x = torch.ones(3, 4, device='pjrt')\n"
    save = "f = torch.compile(model, fullgraph=True, backend='pjrt').forward.aot_compile(((x,), {}))\n"
    first = run(start + save + "f.save_compiled_function('saved'); report([f(model, x).sum().item()])")
    load = "f = torch.compiler.load_compiled_function(open('saved', 'rb'))\n"
    second = run(start + load + "report([f(model, x).sum().item()])", "elsewhere")
    assert second["values"] == first["values"]
    assert second["frames"] == second["trace_misses"] == 0 and second["trace_hits"] == 1
