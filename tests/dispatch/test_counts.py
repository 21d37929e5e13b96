"""What compiles, what is shared, what is read: the counters that users rely on, in numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_pjrt.dispatch.install import forget_programs
from torch_pjrt.errors import HostReadError, RecompileError

pytestmark = pytest.mark.usefixtures("fresh")


def compiles() -> int:
    return int(torch.pjrt.stats()["compiles"])


def test_printing_compiles_little() -> None:
    assert "pjrt" in repr(torch.randn(5, 5, device="pjrt"))
    assert compiles() <= 5


def test_each_length_is_one_program() -> None:
    for n in range(1, 41):
        x = torch.ones(n, device="pjrt")
        assert (x * 2).sum().item() == 2 * n
    assert compiles() <= 40
    assert torch.pjrt.stats()["programs_launched"] == 40


def test_cache_writes_share_one_program() -> None:
    cache = torch.zeros(2, 128, 8, device="pjrt")
    torch.pjrt.synchronize()
    before = compiles()
    for i in range(100):
        cache[:, i : i + 1] = torch.ones(2, 1, 8, device="pjrt") * i
        torch.pjrt.synchronize()
    assert compiles() - before == 1
    assert cache[0, :100, 0].cpu().tolist() == [float(i) for i in range(100)]


def train(steps: int, scaler: bool = False) -> list[int]:
    """Compiles after each step of a small training loop with a changing learning rate."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("pjrt")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    grad_scaler = torch.amp.GradScaler("pjrt", enabled=scaler)
    x, y = torch.randn(32, 8).to("pjrt"), torch.randint(0, 4, (32,)).to("pjrt")
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        grad_scaler.scale(loss).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        schedule.step()
        loss.item()
        seen.append(compiles())
    return seen


@pytest.mark.parametrize("scaler", [False, True])
def test_training_compiles_nothing_after_the_second_step(scaler: bool) -> None:
    seen = train(6, scaler)
    assert seen[1] == seen[-1], torch.pjrt.explain_recompiles()


def test_layers_share_executables() -> None:
    def first_step(layers: int) -> int:
        forget_programs()
        torch.pjrt.reset_stats()
        block = [nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0) for _ in range(layers)]
        model = nn.Sequential(*block).to("pjrt")
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 8, 32, device="pjrt")).square().mean().backward()
        optimizer.step()
        torch.pjrt.synchronize()
        return compiles()

    assert first_step(12) <= first_step(6) + 2


def test_forbidden_events_raise() -> None:
    x = torch.ones(3, device="pjrt")
    torch.pjrt.synchronize()
    x.sum().item()
    with torch.pjrt.fail_on(recompile=True):
        x.sum().item()
        with pytest.raises(RecompileError, match="forbidden"):
            (x * 3).sum().item()
    with torch.pjrt.fail_on(host_read=True), pytest.raises(HostReadError, match="test_counts.py"):
        x.sum().item()
    assert (x * 3).sum().item() == 9


def test_host_reads_name_the_line() -> None:
    torch.ones(2, device="pjrt").sum().item()
    assert any("test_counts.py" in line for line in torch.pjrt.stats()["host_reads"])


def test_recompiles_are_explained() -> None:
    for n in (3, 4):
        (torch.ones(n, device="pjrt") * 2).sum().item()
    text = torch.pjrt.explain_recompiles()
    assert "new shape or dtype" in text and "test_counts.py" in text


def test_scalars_are_operands() -> None:
    x = torch.ones(4, device="pjrt")
    for rate in (0.1, 0.2, 0.0, 1.0):
        (x * rate).sum().item()
    assert compiles() <= 2


def test_a_long_forward_runs_while_the_backward_is_recorded() -> None:
    def reasons(layers: int) -> dict[str, int]:
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))).to("pjrt")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x = torch.ones(2, 4, device="pjrt")
        torch.pjrt.synchronize()
        torch.pjrt.reset_stats()
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        return dict(torch.pjrt.stats()["flushes"])

    early = ("backward begins", "optimizer step begins", "optimizer step")
    assert reasons(4) == {"optimizer step": 2}
    assert reasons(100) == dict.fromkeys(early, 2)
