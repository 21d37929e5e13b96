"""Reading and writing views of a payload, against torch.as_strided on the CPU, for layouts drawn at random."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_pjrt.ops.dtypes import TO_NUMPY
from torch_pjrt.program import access
from torch_pjrt.program.program import spec
from torch_pjrt.tensor.layout import aval_of

DTYPES = (torch.float32, torch.int64, torch.uint8, torch.complex64, torch.bool, torch.float64, torch.int16)
DERANDOMIZED = settings(max_examples=120, deadline=None, derandomize=True)


def _payload(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = int(np.prod(shape))
    values = torch.arange(count) % 2 if dtype is torch.bool else torch.arange(count) + 1
    return values.to(dtype).reshape(shape)


@st.composite
def layouts(draw: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A contiguous tensor, and a view of it by a few of torch's own view functions or by plain as_strided."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    base = _payload(shape, draw(st.sampled_from(DTYPES)))
    view = base
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(
            st.sampled_from(("transpose", "slice", "select", "unsqueeze", "expand", "flat", "strided", "dtype"))
        )
        if kind == "dtype" and view.dtype is not torch.bool and view.is_contiguous():
            target = draw(st.sampled_from([d for d in DTYPES if d is not torch.bool]))
            if view.dim() and (view.shape[-1] * view.element_size()) % target.itemsize == 0:
                try:
                    view = view.view(target)
                except RuntimeError:  # an offset that the wider dtype does not divide
                    pass
        elif kind == "strided":
            room = view.untyped_storage().nbytes() // view.element_size()
            size, stride = draw(st.integers(1, 4)), draw(st.integers(1, 4))
            inner, step = draw(st.integers(1, 3)), draw(st.integers(1, 3))
            last = (size - 1) * stride + (inner - 1) * step
            if last < room:
                view = view.as_strided((size, inner), (stride, step), draw(st.integers(0, room - last - 1)))
        elif view.dim() == 0:
            view = view.unsqueeze(0)
        else:
            dim = draw(st.integers(0, view.dim() - 1))
            n = view.shape[dim]
            if kind == "transpose":
                view = view.transpose(dim, draw(st.integers(0, view.dim() - 1)))
            elif kind == "slice":
                start = draw(st.integers(0, n))
                index = [slice(None)] * dim + [slice(start, draw(st.integers(start, n)), draw(st.integers(1, 3)))]
                view = view[tuple(index)]
            elif kind == "select" and n:
                view = view.select(dim, draw(st.integers(0, n - 1)))
            elif kind == "unsqueeze":
                view = view.unsqueeze(dim)
            elif kind == "expand" and n == 1:
                view = view.expand([3 if d == dim else -1 for d in range(view.dim())])
            elif kind == "flat" and view.is_contiguous():
                view = view.reshape(-1)
    return base, view


def _plan(base: torch.Tensor, view: torch.Tensor) -> tuple[Any, list[Any]]:
    payload = spec(tuple(base.shape), TO_NUMPY[base.dtype])
    aval, starts = aval_of(payload, tuple(view.shape), view.stride(), int(view.storage_offset()), view.dtype)
    return aval.plan, [np.int64(s) for s in starts]


@DERANDOMIZED
@given(layouts())
def test_read_gives_the_view(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    base, view = drawn
    plan, starts = _plan(base, view)
    with jax.enable_x64(True):
        got = jax.jit(lambda p, s: access.read(p, plan, s))(base.numpy(), starts)
    np.testing.assert_array_equal(np.asarray(got), view.numpy())


@DERANDOMIZED
@given(layouts())
def test_write_changes_the_view_and_nothing_else(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    base, view = drawn
    spans = [s for n, s in zip(view.shape, view.stride(), strict=True) if n > 1]
    places = torch.arange(base.untyped_storage().nbytes() // view.element_size())
    if view.numel() and (
        0 in spans
        or places.as_strided(view.shape, view.stride(), view.storage_offset()).unique().numel() != view.numel()
    ):
        return  # several elements share a place: refused before a write
    new = (torch.arange(view.numel()) % 2 if view.dtype is torch.bool else torch.arange(view.numel()) + 100).to(
        view.dtype
    )
    new = new.reshape(view.shape)
    plan, starts = _plan(base, view)
    before = base.numpy().copy()
    with jax.enable_x64(True):
        got = jax.jit(lambda p, s, v: access.write(p, plan, s, v))(before, starts, new.numpy())
    view.copy_(new)
    np.testing.assert_array_equal(np.asarray(got), base.numpy())
