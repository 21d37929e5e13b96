"""Compiled functions whose written arguments are parts of one storage."""

from __future__ import annotations

from collections.abc import Callable

import torch


def _write_both(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    b.mul_(2)
    return a.sum() + b.sum()


def _parts(base: torch.Tensor, write: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    results = [
        write(base[:2], base[2:]),
        write(base[:2].clone(), base[2:].clone()),
        write(base[1:3], base[:1]),
        write(base[:, :3], base[:, 3:]),
    ]
    return [*results, base]


def test_both_writes_are_kept() -> None:
    torch._dynamo.reset()
    want = _parts(torch.arange(24.0).reshape(4, 6), _write_both)
    got = _parts(torch.arange(24.0, device="pjrt").reshape(4, 6), torch.compile(_write_both, dynamic=False))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(got, want, strict=True))
    assert "arguments that are written lie in one storage" in torch.pjrt.explain_recompiles()


def _train(device: str, compiled: Callable[..., Callable[[], object]]) -> torch.Tensor:
    """Parameters and gradients that are parts of one flat buffer each."""
    flat, slopes = (torch.linspace(low, 1, 10).to(device) for low in (-1, 0))
    parameters = [torch.nn.Parameter(flat[:4].view(2, 2)), torch.nn.Parameter(flat[4:])]
    for p, slope in zip(parameters, (slopes[:4].view(2, 2), slopes[4:]), strict=True):
        p.grad = slope
    step = compiled(torch.optim.AdamW(parameters, lr=0.1).step)
    for _ in range(3):
        step()
    return flat.cpu()


def test_flat_parameters() -> None:
    """A compiled step of an optimizer updates each."""
    torch._dynamo.reset()
    torch.testing.assert_close(_train("pjrt", torch.compile), _train("cpu", lambda step: step))
