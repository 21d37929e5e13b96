"""Memory: figures that are true, buffers that are freed, training that does not grow."""

from __future__ import annotations

import gc
import resource

import pytest
import torch
from torch import nn

from torch_pjrt.pjrt.client import chip
from torch_pjrt.pjrt.jax_compat import live_bytes


def device_bytes() -> int:
    torch.pjrt.synchronize()
    gc.collect()
    return live_bytes(chip().device)


def test_dropping_tensors_frees_device_memory() -> None:
    before, figure = device_bytes(), torch.pjrt.memory_allocated()
    x = torch.ones(1 << 20, device="pjrt")
    y = (x + 1)[5:]
    torch.pjrt.synchronize()
    assert device_bytes() - before >= 2 << 22
    assert torch.pjrt.memory_allocated() - figure == 2 << 22
    del x, y
    assert device_bytes() <= before + 1024
    assert torch.pjrt.memory_allocated() == figure


def test_in_place_updates_keep_one_copy() -> None:
    x = torch.ones(1 << 20, device="pjrt")
    torch.pjrt.synchronize()
    before = device_bytes()
    for _ in range(5):
        x.mul_(1.5)
        torch.pjrt.synchronize()
    assert device_bytes() <= before + 1024


def test_peak_counts_what_was_held_together() -> None:
    torch.pjrt.reset_peak_memory_stats()
    start = torch.pjrt.memory_allocated()
    for _ in range(4):
        torch.ones(1 << 18, device="pjrt").add_(1)
    assert 1 << 20 <= torch.pjrt.max_memory_allocated() - start < 3 << 20


def test_training_does_not_grow() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to("pjrt")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    x = torch.ones(16, 64, device="pjrt")

    def train(steps: int) -> tuple[int, int]:
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return device_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    train(100)
    device, host = train(100)
    device_after, host_after = train(1900)
    assert device_after <= device + 1024
    assert host_after - host < 32_000  # KiB


def test_large_results_are_not_left_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_pjrt.dispatch.fused import recorder

    x = torch.ones(1 << 18, device="pjrt")
    torch.pjrt.synchronize()
    torch.pjrt.reset_stats()
    monkeypatch.setattr(recorder(), "byte_limit", 3 << 20)
    results = [x + i for i in range(8)]
    assert torch.pjrt.stats()["flushes"]["memory"] == 2
    assert [r[0].item() for r in results] == [1.0 + i for i in range(8)]
