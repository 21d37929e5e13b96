"""Several devices and loops, ahead of time: rules, shardings, collectives, and costs that do not depend on the form."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest
import torch

from torch_pjrt.aot import build
from torch_pjrt.aot.lowering import lower, plan_of
from torch_pjrt.aot.mesh import Mesh, collectives, parse_mesh
from torch_pjrt.errors import BadSettingError
from torch_pjrt.export.trace import Input, trace
from torch_pjrt.pjrt.client import chip
from torch_pjrt.pjrt.targets import targets
from torch_pjrt.plan.chips import chips

# Four CPU devices take a process of its own.
SCRIPT = """
import json, torch
from torch_pjrt import aot
net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
one = aot.compile(net, (torch.empty(8, 16),), mode="train")
four = aot.compile(net, (torch.empty(8, 16),), mode="train", mesh="data=2,model=2")
print(json.dumps([one.as_dict(), four.as_dict(), str(four)]))
"""


def test_a_mesh_divides_memory_and_adds_collectives() -> None:
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=flags)
    assert done.returncode == 0, done.stderr
    one, four, text = json.loads(done.stdout.splitlines()[-1])
    assert four["ok"], text
    assert 0.45 < four["memory"]["arguments"] / one["memory"]["arguments"] < 0.7
    assert four["collectives"].get("all-reduce", 0) >= 2 and not one["collectives"]
    assert "mesh data=2,model=2: memory is of one device" in text


def test_meshes_and_rules(tmp_path: pathlib.Path) -> None:
    mesh = parse_mesh("data=2, model=4")
    assert mesh.size == 8 and str(mesh) == "data=2,model=4"
    weight = Input("parameter", "up.weight", (16, 8), torch.float32)
    assert mesh.dims(weight, (16, 8)) == ("model", None)
    assert mesh.dims(weight, (8, 16)) == (None, "model")
    assert mesh.dims(weight, (18, 8)) == (None, None)
    assert mesh.dims(weight, (8, 64, 32)) == (None, "model", None)  # experts
    assert mesh.dims(weight, (8, 32, 64)) == (None, None, "model")
    assert mesh.dims(weight, (64, 32, 3)) == ("model", None, None)  # a kernel
    assert mesh.dims(weight, (64, 32, 3, 3)) == ("model", None, None, None)
    assert mesh.dims(Input("parameter", "bias", (16,), torch.float32), (16,)) == (None,)
    assert mesh.dims(Input("argument", "argument.0", (6, 5), torch.float32), (6, 5)) == ("data", None)
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nmatch = "up"\ndims = ["", "model"]\n')
    mesh = parse_mesh("model=4", rules)
    assert mesh.dims(weight, (16, 8)) == (None, "model")
    with pytest.raises(BadSettingError, match="dim 1 along model"):
        mesh.dims(weight, (16, 6))
    for wrong in ("model", "model=0", "a=2,a=2", "2"):
        with pytest.raises(BadSettingError, match="is no mesh"):
            parse_mesh(wrong)
    rules.write_text("rule = 3")
    with pytest.raises(BadSettingError, match="has no rules"):
        parse_mesh("model=2", rules)


def test_collectives_are_counted() -> None:
    text = "%a = f32[2] all-reduce(%x)\n%b = all-gather-start(%y)\n%c = all-gather-done(%b)\n%d = f32[] all-reduce(%z)"
    assert collectives(text) == {"all-reduce": 2, "all-gather": 1}


def _deep(depth: int) -> torch.nn.Module:
    def block() -> torch.nn.Module:
        steps = [
            (torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), act)
            for act in (torch.nn.Tanh(), torch.nn.GELU(), torch.nn.SiLU())
        ]
        return torch.nn.Sequential(*(s for each in steps for s in each))

    return torch.nn.Sequential(*(block() for _ in range(depth)))


@pytest.mark.parametrize("train", [False, True])
def test_loops_cost_what_they_replace(train: bool) -> None:
    traced = trace(_deep(6), (torch.empty(4, 8),), train=train)
    plan = plan_of(traced)
    assert plan is not None
    straight, looped = (lower(traced, [chip().device], "highest", plan=p) for p in (None, plan))
    assert looped.costs["flops"] == pytest.approx(straight.costs["flops"], rel=0.02)
    assert max(rounds for rounds, _ in looped.loops) == 6
    names = [group for group in looped.arguments if len(group) > 1]
    assert [f"{k}.1.weight" for k in range(6)] in [sorted(group) for group in names]


def test_what_is_refused_as_loops_is_compiled_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_, tried = jax.stages.Lowered.compile, []

    def fails_first(self: jax.stages.Lowered, options: object) -> jax.stages.Compiled:
        tried.append(self)
        if len(tried) == 1:
            raise RuntimeError("no loops")
        return compile_(self)

    monkeypatch.setattr(build, "_LOOPS", ("cpu",))
    assert build.compile(_deep(4), (torch.empty(4, 8),)).loops
    monkeypatch.setattr(jax.stages.Lowered, "compile", fails_first)
    report = build.compile(_deep(4), (torch.empty(4, 8),))
    assert report.ok and not report.loops and len(tried) == 2


def test_rules_reach_stacked_arguments() -> None:
    traced = trace(_deep(4), (torch.empty(4, 8),))
    mesh = Mesh({"model": 1}, ((r"\.1\.weight", (None, "model")),))
    lowered = lower(traced, [chip().device], "highest", plan=plan_of(traced), mesh=mesh)
    assert lowered.loops and "4x8x8" in lowered.stage.as_text()


def test_memory_of_targets_and_of_the_plan_agree() -> None:
    """XLA's figure for a device against the vendor's for a chip, which may be two devices."""
    known = {c.target: c for c in chips().values() if c.target in targets()}
    assert len(known) >= 8
    for name, facts in known.items():
        row = targets()[name]
        if row.memory is not None:
            ratio = (facts.fact("memory").value or 0) / row.memory
            assert min(abs(ratio - n) / n for n in (1, 2)) < 0.08, (name, ratio)
