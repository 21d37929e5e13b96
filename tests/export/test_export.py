"""torch_pjrt.export and load: the same numbers as the model, one folder, no pickle, clear refusals."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import torch

import torch_pjrt
from torch_pjrt.errors import InvalidOperandError

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Net(torch.nn.Module):
    """Convolution, batch norm, a buffer, a view as a result, nested results, a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.out = torch.nn.Linear(8, 4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> dict[str, object]:
        hidden = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return {"y": self.out(hidden) * scale + self.shift, "rest": (hidden.t(), None)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    torch.manual_seed(0)
    net = Net().eval()
    path = torch_pjrt.export(net, (torch.randn(2, 3, 8, 8),), tmp_path_factory.mktemp("net"), kwargs={"scale": 3.0})
    torch.save(net.state_dict(), path.parent / "net.pt")
    return path


def _net(folder: pathlib.Path) -> Net:
    net = Net().eval()
    net.load_state_dict(torch.load(folder.parent / "net.pt"))
    return net


def test_round_trip(folder: pathlib.Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    program = torch_pjrt.load(folder)
    for given in (x, x.to("pjrt"), x.to(memory_format=torch.channels_last)):
        found, want = program(given, scale=3.0), _net(folder)(x, 3.0)
        assert found["y"].device.type == "pjrt" and found["rest"][1] is None
        torch.testing.assert_close(found["y"].cpu(), want["y"].detach(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found["rest"][0].cpu(), want["rest"][0].detach(), atol=1e-5, rtol=1e-5)


def test_exported_program_of_torch(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    net = _net(folder)
    found = torch_pjrt.load(torch_pjrt.export(torch.export.export(net, (x,)), (x,), tmp_path))(x)
    torch.testing.assert_close(found["y"].cpu(), net(x)["y"].detach(), atol=1e-5, rtol=1e-5)


def test_runs_with_jax_alone(folder: pathlib.Path) -> None:
    script = ROOT / "docs" / "run_with_jax.py"
    code = "import sys; sys.modules['torch'] = sys.modules['torch_pjrt'] = None; "
    code += f"sys.argv = ['run', {str(folder)!r}]; exec(open({str(script)!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    want = _net(folder)(torch.ones(2, 3, 8, 8), 3.0)["y"].abs().sum().item()
    assert abs(float(done.stdout.splitlines()[0].split()[-1]) - want) < 1e-3 * want


def test_folder_holds_no_pickle(folder: pathlib.Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "program.bin", "weights.safetensors"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["platforms"] == ["cpu", "tpu", "cuda", "rocm"]
    assert "norm.num_batches_tracked" not in manifest["weights"]
    assert all(not p.read_bytes().startswith((b"\x80\x02", b"\x80\x04", b"PK")) for p in folder.iterdir())


def test_random_numbers_follow_the_seed(tmp_path: pathlib.Path) -> None:
    program = torch_pjrt.load(torch_pjrt.export(lambda x: x + torch.rand_like(x), (torch.zeros(64),), tmp_path))
    x = torch.zeros(64)
    assert torch.equal(program(x, seed=1).cpu(), program(x, seed=1).cpu())
    assert not torch.equal(program(x, seed=1).cpu(), program(x, seed=2).cpu())
    assert not torch.equal(program(x).cpu(), program(x).cpu())


def test_bfloat16_and_tied_weights(tmp_path: pathlib.Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)).bfloat16()
    net[1].weight = net[0].weight
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    program = torch_pjrt.load(torch_pjrt.export(net, (x,), tmp_path))
    assert list(program.weights) == ["0.weight"]
    torch.testing.assert_close(program(x).cpu(), net(x).detach(), atol=2e-2, rtol=2e-2)


def test_other_arguments_are_refused(folder: pathlib.Path) -> None:
    program = torch_pjrt.load(folder)
    with pytest.raises(InvalidOperandError, match="fixed sizes"):
        program(torch.randn(3, 3, 8, 8), scale=3.0)
    with pytest.raises(
        InvalidOperandError, match=r"for arguments \(tensor 0, scale=3.0\), got \(tensor 0, scale=1.0\)"
    ):
        program(torch.randn(2, 3, 8, 8), scale=1.0)


def test_damage_is_found(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "program.bin").write_bytes(b"other")
    with pytest.raises(InvalidOperandError, match="damaged"):
        torch_pjrt.load(tmp_path)
    with pytest.raises(InvalidOperandError, match="not an exported program"):
        torch_pjrt.load(tmp_path / "none")


def test_what_cannot_be_exported(tmp_path: pathlib.Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    with pytest.raises(InvalidOperandError, match=r"writes to norm.running_mean.*\n.*eval"):
        torch_pjrt.export(Net().train(), (x,), tmp_path)
    with torch.device("meta"):
        empty = Net().eval()
    with pytest.raises(InvalidOperandError, match="meta device"):
        torch_pjrt.export(empty, (x,), tmp_path)
