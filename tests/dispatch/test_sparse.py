"""Sparse tensors on the device give what they give on the CPU; what they cannot do says what to do instead."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_pjrt.errors import UnsupportedOpError

DEVICE = "pjrt"
PLACES = torch.tensor([[0, 1, 1, 1], [2, 0, 2, 0]])  # one of them twice


def _dense(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1))


def _coo(device: str) -> torch.Tensor:
    values = torch.tensor([3.0, -4.0, 5.0, 1.0])
    return torch.sparse_coo_tensor(PLACES.to(device), values.to(device), (2, 3))


def _csr(device: str) -> torch.Tensor:
    return torch.sparse_csr_tensor(
        torch.tensor([0, 1, 3]).to(device),
        torch.tensor([2, 0, 2]).to(device),
        torch.tensor([3.0, -4.0, 5.0]).to(device),
    )


Make = Callable[[str], torch.Tensor]
BOTH: dict[str, Callable[[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]], Any]] = {
    "to_dense": lambda s, to: s.to_dense(),
    "t": lambda s, to: s.t(),
    "neg": lambda s, to: -s,
    "sin": lambda s, to: s.sin(),
    "scaled": lambda s, to: 2 * s,
    "sum of two": lambda s, to: s + s,
    "dense plus sparse": lambda s, to: to(_dense(2, 3)) + s,
    "masked": lambda s, to: s * to(_dense(2, 3)),
    "mm": lambda s, to: torch.sparse.mm(s, to(_dense(3, 4))),
    "dense @ sparse": lambda s, to: to(_dense(4, 2)) @ s,
    "addmm": lambda s, to: torch.addmm(to(_dense(2, 4)), s, to(_dense(3, 4)), beta=2, alpha=3),
    "mv": lambda s, to: s @ to(_dense(3)),
    "to_csr": lambda s, to: s.to_sparse_csr(),
    "to_csc": lambda s, to: s.to_sparse_csc(),
    "double": lambda s, to: s.double(),
}
COO_ONLY = {
    "coalesce": lambda s, to: s.coalesce(),
    "sum over rows": lambda s, to: torch.sparse.sum(s, 0),
    "sum of all": lambda s, to: torch.sparse.sum(s),
    "cat": lambda s, to: torch.cat([s, s]),
    "norm": lambda s, to: s.norm(),
    "sparse @ sparse": lambda s, to: torch.sparse.mm(s, s.t()),
    "sparse_mask": lambda s, to: to(_dense(2, 3)).sparse_mask(s.coalesce()),
    "index_select": lambda s, to: s.index_select(0, to(torch.tensor([1, 0, 1]))),
}
CASES = [(_coo, *c) for c in (BOTH | COO_ONLY).items()] + [(_csr, *c) for c in BOTH.items()]


def _same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.device.type == DEVICE
    assert (got.layout, got.dtype, got.shape) == (want.layout, want.dtype, want.shape)
    plain = [x.to_dense() if x.layout != torch.strided else x for x in (got.cpu(), want)]
    torch.testing.assert_close(*plain)


@pytest.mark.parametrize(("make", "name", "run"), CASES, ids=[f"{m.__name__[1:]} {n}" for m, n, _ in CASES])
def test_as_on_the_cpu(make: Make, name: str, run: Any) -> None:
    torch.pjrt.reset_stats()
    _same(run(make(DEVICE), lambda x: x.to(DEVICE)), run(make("cpu"), lambda x: x))
    assert not torch.pjrt.stats()["fallbacks"]


def test_from_dense_and_across_devices() -> None:
    x = _dense(3, 4) * (_dense(3, 4) > 0)
    sparse = x.to(DEVICE).to_sparse()
    assert sparse.layout == torch.sparse_coo and sparse.is_coalesced()
    assert torch.equal(sparse.cpu().to_dense(), x)
    assert torch.equal(x.to_sparse().to(DEVICE).to_dense().cpu(), x)
    assert torch.equal(x.to(DEVICE).to_sparse(1).to_dense().cpu(), x)
    assert "layout=torch.sparse_coo" in repr(sparse)
    buffer = io.BytesIO()
    torch.save(sparse, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer).to_dense().cpu(), x)


@pytest.mark.parametrize("make", [_coo, _csr])
def test_gradients_of_products(make: Make) -> None:
    found = []
    for device in ("cpu", DEVICE):
        sparse = make(device)
        sparse = (sparse.coalesce() if make is _coo else sparse).requires_grad_()
        dense = _dense(3, 4).to(device).requires_grad_()
        grads = torch.autograd.grad((sparse @ dense).square().sum(), [sparse, dense])
        found.append([g.to_dense().cpu() if g.layout != torch.strided else g.cpu() for g in grads])
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want)


def _sparse_adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SparseAdam(list(parameters))


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def _adagrad(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, 0.1)


@pytest.mark.parametrize("optimizer", [_sparse_adam, _sgd, _adagrad])
@pytest.mark.parametrize("bag", [False, True])
def test_tables_with_sparse_gradients_train(optimizer: Any, bag: bool) -> None:
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        table: Any = (
            torch.nn.EmbeddingBag(10, 4, sparse=True, mode="sum") if bag else torch.nn.Embedding(10, 4, sparse=True)
        )
        table.to(device)
        step = optimizer(table.parameters())
        rows = torch.tensor([[1, 2], [1, 5]], device=device)
        for _ in range(3):
            step.zero_grad()
            table(rows).square().sum().backward()
            assert table.weight.grad.is_sparse
            step.step()
        results.append(table.weight.detach().cpu())
    torch.testing.assert_close(*results)


def test_what_is_missing_says_so() -> None:
    with pytest.raises(UnsupportedOpError, match="to_dense"):
        torch.sparse.softmax(_coo(DEVICE), 1)
    with pytest.raises(UnsupportedOpError, match="BSR"):
        _dense(4, 4).to(DEVICE).to_sparse_bsr((2, 2))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reduced_products(reduce: str) -> None:
    found = []
    for device in ("cpu", DEVICE):
        sparse, dense = _csr(device).requires_grad_(), _dense(3, 4).to(device).requires_grad_()
        out = torch.sparse.mm(sparse, dense, reduce)
        grads = torch.autograd.grad(out.square().sum(), [sparse, dense])
        found.append([out.detach().cpu(), grads[0].cpu().to_dense(), grads[1].cpu()])
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want)


def test_products_sampled_where_a_matrix_has_elements() -> None:
    def run(device: str) -> list[torch.Tensor]:
        sparse = _csr(device).requires_grad_()
        a, b = (_dense(*n).to(device).requires_grad_() for n in ((2, 5), (5, 3)))
        out = torch.sparse.sampled_addmm(sparse, a, b, beta=0.5, alpha=2)
        return [out.detach(), *torch.autograd.grad(out.to_dense().square().sum(), [sparse, a, b])]

    for got, want in zip(run(DEVICE), run("cpu"), strict=True):
        _same(got, want)


def test_a_refusal_in_backward_is_told() -> None:
    dense = _dense(3, 4).to(DEVICE).requires_grad_()
    dense.register_hook(lambda g: torch.sparse.softmax(g.to_sparse(), 1).to_dense())
    with pytest.raises(UnsupportedOpError, match="to_dense"):
        dense.sum().backward()
