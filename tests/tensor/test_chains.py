"""Random chains of views, in-place writes and reads: the device must agree with CPU torch after every one.

Both sides run the same chain on tensors that alias in the same way; at the end every tensor made along the chain is
compared, with its size, stride and offset, so a write that reached the wrong alias is seen.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DTYPES = [torch.float32, torch.int64, torch.bool, torch.bfloat16]


def _base(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = 1
    for n in shape:
        count *= n
    values = torch.arange(count, dtype=torch.float32).reshape(shape) % 7 - 3
    return values.to(dtype)


@st.composite
def view_step(draw: Any, size: tuple[int, ...]) -> tuple[str, tuple[Any, ...]]:
    """One view that is legal on a tensor of this size."""
    rank = len(size)
    choices = ["unsqueeze", "detach"]
    if rank:
        choices += ["select", "narrow", "step", "transpose", "squeeze", "chunk", "flip_view", "expand"]
    if rank >= 2:
        choices += ["permute", "diagonal", "t_flat"]
    if rank and size[-1] >= 2:
        choices += ["unfold"]
    kind = draw(st.sampled_from(choices))
    dim = draw(st.integers(0, rank - 1)) if rank else 0
    if kind == "select":
        return ("select", (dim, draw(st.integers(0, size[dim] - 1)))) if size[dim] else ("detach", ())
    if kind == "narrow":
        start = draw(st.integers(0, size[dim]))
        return ("narrow", (dim, start, draw(st.integers(0, size[dim] - start))))
    if kind == "step":
        return ("step", (dim, draw(st.integers(1, 3))))
    if kind == "transpose":
        return ("transpose", (dim, draw(st.integers(0, rank - 1))))
    if kind == "permute":
        return ("permute", (tuple(draw(st.permutations(range(rank)))),))
    if kind == "unfold":
        width = draw(st.integers(1, size[-1]))
        return ("unfold", (rank - 1, width, draw(st.integers(1, 2))))
    if kind == "chunk":
        return ("chunk", (dim, draw(st.integers(1, 3))))
    if kind == "expand":
        return ("expand", (2,))
    return (kind, (dim,) if kind in ("unsqueeze", "squeeze") else ())


def apply_view(x: torch.Tensor, kind: str, args: tuple[Any, ...]) -> torch.Tensor:
    """The view itself, on either device."""
    if kind == "step":
        index = [slice(None)] * x.dim()
        index[args[0]] = slice(None, None, args[1])
        return x[tuple(index)]
    if kind == "chunk":
        return x.chunk(args[1], args[0])[-1]
    if kind == "expand":
        return x.expand(args[0], *x.shape)
    if kind == "flip_view":
        return x.as_strided(x.shape, x.stride(), x.storage_offset())
    if kind == "t_flat":
        return x.reshape(-1) if x.is_contiguous() else x.transpose(0, 1)
    if kind == "diagonal":
        return x.diagonal()
    return getattr(x, kind)(*args)  # type: ignore[no-any-return]


def apply_write(x: torch.Tensor, kind: str, number: int, other: torch.Tensor) -> None:
    """An in-place write, on either device."""
    if kind == "fill_":
        x.fill_(number)
    elif kind == "add_":
        x.add_(x.new_ones(()))
    elif kind == "mul_":
        x.mul_(x.new_ones(()))
    elif kind == "zero_":
        x.zero_()
    elif kind == "copy_":
        x.copy_(torch.ones_like(x))
    elif kind == "masked_fill_":
        x.masked_fill_(x > 0, number)
    elif kind == "setitem" and x.dim() and x.shape[0]:
        x[0] = number
    elif kind == "setmask" and x.dim():
        x[x == 1] = number
    elif kind == "cpu_copy_":
        x.copy_(torch.full(x.shape, number, dtype=torch.float32).to(x.dtype))
    elif kind == "from_base":
        x.copy_(other.reshape(-1)[0].clone().expand(x.shape) if other.numel() else x.clone())


WRITES = ["fill_", "add_", "mul_", "zero_", "copy_", "masked_fill_", "setitem", "setmask", "cpu_copy_", "from_base"]


def has_overlap(x: torch.Tensor) -> bool:
    """Whether two elements of the tensor share a location (writes to those are undefined or refused)."""
    flat = torch.zeros(1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 1)
    positions = torch.arange(flat.numel()).as_strided(x.shape, x.stride()).reshape(-1)
    return positions.unique().numel() != positions.numel()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_chain_agrees_with_cpu(data: Any) -> None:
    run_chain(data)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_thousands_of_chains_agree_with_cpu(data: Any) -> None:
    run_chain(data)


def run_chain(data: Any) -> None:
    """One chain, on both sides."""
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=0, max_size=3)))
    dtype = data.draw(st.sampled_from(DTYPES))
    host = [_base(shape, dtype)]
    device = [host[0].to("pjrt")]
    for _ in range(data.draw(st.integers(1, 7))):
        at = data.draw(st.integers(0, len(host) - 1))
        if data.draw(st.booleans()):
            kind, args = data.draw(view_step(tuple(host[at].shape)))
            host.append(apply_view(host[at], kind, args))
            device.append(apply_view(device[at], kind, args))
        elif not has_overlap(host[at]):
            kind = data.draw(st.sampled_from(WRITES))
            number = data.draw(st.integers(0, 3))
            apply_write(host[at], kind, number, host[0])
            apply_write(device[at], kind, number, device[0])
        if data.draw(st.integers(0, 3)) == 0:
            assert device[at].cpu().equal(host[at])
    for h, d in zip(host, device, strict=True):
        assert d.shape == h.shape and d.stride() == h.stride() and d.storage_offset() == h.storage_offset()
        torch.testing.assert_close(d.cpu(), h, rtol=0, atol=0)
