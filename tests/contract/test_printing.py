"""Printing reads a tensor once and looks as torch prints it."""

import pytest
import torch

SAMPLES = [
    torch.arange(6.0).reshape(2, 3),
    torch.tensor(3),
    torch.empty(0, 3),
    torch.tensor([1 + 2j]),
    torch.tensor([True, False]),
    torch.full((2,), float("nan")),
    torch.arange(3000),
    torch.ones(2, dtype=torch.bfloat16),
    torch.arange(6.0).reshape(2, 3).t(),
]


@pytest.mark.parametrize("host", SAMPLES, ids=lambda t: f"{tuple(t.shape)}-{t.dtype}")
def test_same_text(host, device):
    text = repr(host.to(device))
    assert f"device='{device}'" in text
    plain = text.replace(f" device='{device}',", "").replace(f", device='{device}'", "")
    assert "".join(plain.split()) == "".join(repr(host).split())


def test_grad_function_and_parameter(device):
    p = torch.nn.Parameter(torch.ones(2, device=device))
    assert "requires_grad=True" in repr(p) and "grad_fn" in repr(p * 2)
    assert f"{torch.tensor(1.5, device=device):.2f}" == "1.50"


def test_one_host_read(device):
    x = torch.ones(4, 4, device=device)
    torch.pjrt.synchronize()
    before = sum(torch.pjrt.stats()["host_reads"].values())
    repr(x)
    assert sum(torch.pjrt.stats()["host_reads"].values()) == before + 1
