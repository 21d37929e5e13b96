"""What a second process gets from the first: executables through torch's cache artifacts, and through the disk cache."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import textwrap

import pytest

from torch_pjrt.config import child_environment

WORK = """
    import json, sys, torch
    from torch import nn

    def train():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to("pjrt")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.compile(lambda x: model(x).square().sum())
        for _ in range(2):
            loss = step(torch.ones(3, 4, device="pjrt"))
            loss.backward()
            torch.pjrt.synchronize()
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()
"""


def run(program: str, cache: str, *arguments: str) -> dict[str, float]:
    """Run a program in a process of its own; what it printed last, as JSON."""
    environment = child_environment({"TORCH_PJRT_CACHE_DIR": cache})
    command = [sys.executable, "-c", textwrap.dedent(WORK) + textwrap.dedent(program), *arguments]
    out = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert out.returncode == 0, out.stderr
    return dict(json.loads(out.stdout.splitlines()[-1]))


SAVE = """
    loss = train()
    data, info = torch.compiler.save_cache_artifacts()
    open(sys.argv[1], "wb").write(data)
    keys = info.torch_pjrt_artifacts
    assert len(keys) == len(set(keys))
    print(json.dumps({"loss": loss, "compiles": torch.pjrt.stats()["compiles"], "artifacts": len(keys)}))
"""
LOAD = """
    info = torch.compiler.load_cache_artifacts(open(sys.argv[1], "rb").read())
    before = len(info.torch_pjrt_artifacts)
    with torch.no_grad():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to("pjrt")
        x = torch.ones(3, 4, device="pjrt")
        torch.pjrt.synchronize()
    step = torch.compile(lambda x: model(x).square().sum())
    seed = torch.ones((), device="pjrt")
    torch.pjrt.synchronize()
    torch.pjrt.reset_stats()
    step(x).backward(seed)
    stats = torch.pjrt.stats()
    print(json.dumps({"compiles": stats["compiles"], "disk_hits": stats["disk_hits"], "artifacts": before}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["off", "on"])
def test_artifacts_carry_executables_to_another_process(tmp_path: pathlib.Path, cache: str) -> None:
    bundle = str(tmp_path / "bundle")
    folder = "off" if cache == "off" else str(tmp_path / "second")
    first = run(SAVE, "off" if cache == "off" else str(tmp_path / "first"), bundle)
    assert first["artifacts"] >= 2 and first["compiles"] > 0
    second = run(LOAD, folder, bundle)
    assert second["artifacts"] == first["artifacts"]
    assert second["compiles"] == 0
    assert second["disk_hits"] == 2  # forward and backward


def test_artifacts_hold_no_pickle_of_ours() -> None:
    """The content is the entry of the disk cache, as it is."""
    import torch

    from torch_pjrt.compile.artifacts import ExecutableArtifact
    from torch_pjrt.config import settings
    from torch_pjrt.pjrt import cache

    function = torch.compile(lambda x: x * 3 - 1)
    function(torch.ones(5, device="pjrt"))
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    found = torch.compiler._cache.CacheArtifactManager.deserialize(saved[0])
    assert found is not None
    ours = [a for a in found["torch_pjrt"] if isinstance(a, ExecutableArtifact)]
    assert ours and all(ExecutableArtifact.encode(a.content) is a.content for a in ours)
    with settings.override(cache_dir="off"):
        ours[0].populate_cache()
        assert cache.load(ours[0].key) == ours[0].content
