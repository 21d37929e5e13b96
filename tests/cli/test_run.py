"""`torch-pjrt run`: scripts that ask for CUDA, each in a process of its own, since the patches are process-wide."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest


def run(tmp_path: pathlib.Path, code: str, *arguments: str, module: bool = False) -> subprocess.CompletedProcess:
    """Run code under the command. Gives the finished process."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    where = ["-m", "script"] if module else [str(script)]
    command = [sys.executable, "-m", "torch_pjrt.cli.main", "run", *where, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)


def passes(done: subprocess.CompletedProcess) -> subprocess.CompletedProcess:
    assert done.returncode == 0, done.stderr
    return done


TRAINING = """
    import torch
    from torch import nn

    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.cuda.manual_seed_all(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda")
    x, y = torch.randn(32, 8, device="cuda:0"), torch.randint(2, (32,)).to(device)
    for _ in range(5):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.cuda.synchronize()
    assert loss.item() < 1.0 and x.is_cuda and next(model.parameters()).is_cuda
    assert nn.DataParallel(model)(x).shape == (32, 2)
    print("trained on", loss.device)
"""


def test_a_training_script(tmp_path: pathlib.Path) -> None:
    done = passes(run(tmp_path, TRAINING))
    assert "trained on pjrt:0" in done.stdout
    assert "torch.cuda.is_available" in done.stderr and "nothing fell back" in done.stderr


DEVICES = """
    import torch

    with torch.device("cuda"):
        assert torch.zeros(2).device.type == "pjrt"
    assert torch.empty_like(torch.zeros(2), device="cuda").device.type == "pjrt"
    assert torch.zeros(2).new_zeros(3, device="cuda").device.type == "pjrt"
    assert torch.zeros(2).type(torch.cuda.DoubleTensor).dtype == torch.float64
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator)
    first = torch.rand(2, device="cuda", generator=generator)
    torch.set_default_device("cuda")
    assert torch.ones(1).device.type == "pjrt"
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        torch.ones(2).cuda() * 2
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    assert torch.cuda.memory_allocated() > 0 and torch.cuda.max_memory_allocated() > 0
    assert torch.cuda.get_device_name()
    torch.cuda.empty_cache()
    assert torch.zeros(2, device="cpu").is_cuda is False
"""


def test_every_way_to_name_the_device(tmp_path: pathlib.Path) -> None:
    passes(run(tmp_path, DEVICES))


CHECKPOINT = """
    import torch

    torch.save({"w": torch.arange(4.0, device="cuda")}, "w.pt")
    same = lambda storage, location: storage
    for where in ("cuda", "cuda:0", torch.device("cuda"), {"cuda:0": "cuda:0"}, same, None):
        assert torch.load("w.pt", map_location=where)["w"].tolist() == [0, 1, 2, 3]
"""


def test_checkpoints(tmp_path: pathlib.Path) -> None:
    passes(run(tmp_path, CHECKPOINT))


@pytest.mark.parametrize("module", [False, True])
def test_the_script_sees_its_own_arguments_and_name(tmp_path: pathlib.Path, module: bool) -> None:
    code = """
        import sys
        if __name__ == "__main__":
            print(sys.argv[1:], __file__.rpartition("/")[2])
            sys.exit(3)
    """
    done = run(tmp_path, code, "--device", "cuda", "-m", module=module)
    assert "['--device', 'cuda', '-m'] script.py" in done.stdout
    assert done.returncode == 3


def test_an_error_shows_the_script_only(tmp_path: pathlib.Path) -> None:
    done = run(tmp_path, "import torch\ntorch.zeros(2, device='cuda') + torch.zeros(3, device='cuda')\n")
    assert done.returncode == 1
    assert done.stderr.lstrip().startswith("Traceback (most recent call last):\n  File") and "script.py" in done.stderr
    assert "click" not in done.stderr and "runpy" not in done.stderr


def test_the_patches_are_undone() -> None:
    code = """
        import torch
        from torch_pjrt.integrations import cuda_alias
        before = torch.zeros, torch.Tensor.to, torch.cuda.is_available, torch.autocast.__init__
        with cuda_alias.active() as counts:
            assert torch.zeros(2, device="cuda").device.type == "pjrt" and counts['device="cuda"'] == 1
        assert before == (torch.zeros, torch.Tensor.to, torch.cuda.is_available, torch.autocast.__init__)
        assert not torch.cuda.is_available()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
