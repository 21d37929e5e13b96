"""Operators whose result's size depends on values: the row gives a padded result and a count, and the count is read.

Also indexing with masks, which is nonzero and then indexing with integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.dispatch.kernel_table import KernelTable
from torch_pjrt.dispatch.overlap import UNSHARED, UNSHARED_IN_PLACE, refuse_repeated, refuse_shared
from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.ops.registry import ROWS, Row
from torch_pjrt.ops.schema import find_overload, functional_twin, schema_of
from torch_pjrt.program.program import Template
from torch_pjrt.tensor.storage import Value, make_tensor

aten = torch.ops.aten
KERNELS = KernelTable()
kernel = KERNELS.kernel


def _prefix(template: Template, position: int, value: Value, count: int) -> torch.Tensor:
    """The first `count` rows of a padded result."""
    padded = make_tensor(template.outs[position], value)
    return padded.narrow(0, 0, count) if padded.dim() and padded.shape[0] != count else padded


def dynamic(name: str) -> Callable[..., Any]:
    """The kernel of a row with dynamic=True: run, read the count, cut the results to it."""
    from torch_pjrt.dispatch.table import row_kernel

    def run(*args: Any, **kwargs: Any) -> Any:
        template, outs = row_kernel(name).step(args, kwargs)
        *results, count = outs
        number = int(recorder().host_read(count, f"size of {name.removeprefix('aten::')}"))
        padded = [o.size[:1] == template.outs[0].size[:1] for o in template.outs]
        tensors = [
            _prefix(template, i, v, number) if padded[i] else make_tensor(template.outs[i], v)
            for i, v in enumerate(results)
        ]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    return run


def dynamic_out(name: str, overload: OpOverload) -> Callable[..., Any]:
    """The out= kernel of a row with dynamic=True: its result, copied to outputs that are given its size."""
    schema = schema_of(overload)
    names = [schema.arguments[i].name for i in schema.writes]

    def run(*args: Any, **kwargs: Any) -> Any:
        targets = [kwargs.pop(n) for n in names]
        for target in targets:
            refuse_repeated(overload._schema.name, target)
            refuse_shared(overload._schema.name, target, (*args, *kwargs.values()), UNSHARED)
        found = dynamic(name)(*args, **kwargs)
        for target, result in zip(targets, found if isinstance(found, tuple) else (found,), strict=True):
            if target.dtype is not result.dtype:
                raise InvalidOperandError(f"{name}: Expected out tensor to have {result.dtype} but got {target.dtype}")
            target.resize_(result.shape)
            target.copy_(result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return run


def _out_overloads(row: Row) -> list[OpOverload]:
    """The out= overloads of a row's operator whose functional twin it is."""
    op = find_overload(row.name)
    assert op is not None
    packet = getattr(torch.ops.aten, row.name.removeprefix("aten::").rsplit(".", 1)[0])
    found = [getattr(packet, o) for o in packet.overloads()]
    return [o for o in found if schema_of(o).is_out and functional_twin(o) is op]


def _refuse_other_empty_dims(self: torch.Tensor, dim: int) -> None:
    """Slices without elements: torch does not say whether they are equal."""
    if 0 in (*self.shape[: dim % self.dim()], *self.shape[dim % self.dim() + 1 :]):
        raise InvalidOperandError(
            f"There are 0 sized dimensions in {list(self.shape)}, and they aren't selected, so unique cannot be applied"
        )


def _unique_along(name: str) -> Callable[..., Any]:
    """The unique family along a dim: its rows give the slices along dim 0, which is moved back here."""

    def run(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        names = [a.name for a in find_overload(f"aten::{name}.default")._schema.arguments][1:]  # type: ignore[union-attr]
        given = dict(zip(names, args), **kwargs)  # noqa: B905 - trailing defaults are left out
        if given.get("dim") is not None and self.dim():
            _refuse_other_empty_dims(self, given["dim"])
        values, *others = dynamic(f"aten::{name}.default")(self, **given)
        dim = given.get("dim")
        return (values if not dim or not self.dim() else values.movedim(0, dim), *others)

    return run


for _name in ("unique_dim", "unique_dim_consecutive", "unique_consecutive"):
    KERNELS[_name] = _unique_along(_name)


INDEX_DTYPES = frozenset((torch.int64, torch.int32, torch.uint8, torch.bool))


def _is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _refuse_mask(self: torch.Tensor, mask: torch.Tensor, at: int) -> None:
    if mask.shape != self.shape[at : at + mask.dim()]:
        raise IndexError(
            f"The shape of the mask {list(mask.shape)} at index {at} does not match the shape of the indexed tensor "
            f"{list(self.shape)} at index {at}"
        )


def expand_masks(self: torch.Tensor, indices: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Replace each bool mask by the integer indices of its True elements, as many as it has dims."""
    out: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype not in INDEX_DTYPES:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if index is None or not _is_mask(index):
            if index is not None and index.device.type == "cpu":
                index = index.to(self.device)
            out.append(index)
            continue
        _refuse_mask(self, index, len(out))
        if index.device.type == "cpu":
            index = index.to(self.device)
        out.extend(aten.nonzero.default(index).unbind(1))
    return out


@kernel("index.Tensor", "_unsafe_index.Tensor")
def index(self: torch.Tensor, indices: list[torch.Tensor | None]) -> torch.Tensor:
    """x[indices]; masks become integers first (which reads their count)."""
    from torch_pjrt.dispatch.kernels import results_of
    from torch_pjrt.dispatch.table import row_kernel

    template, outs = row_kernel("aten::index.Tensor").step((self, expand_masks(self, list(indices))), {})
    return results_of(template, outs)[0] if not template.single else make_tensor(template.outs[0], outs[0])


def _masked_fill_instead(
    self: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool
) -> torch.Tensor | None:
    """x[mask] = number needs no count: a select instead of a scatter."""
    if accumulate or values.numel() != 1 or len(indices) != 1 or indices[0] is None or not _is_mask(indices[0]):
        return None
    mask = indices[0].to(self.device)
    if mask.shape != self.shape[: mask.dim()]:
        return None
    mask = mask.to(torch.bool).reshape(mask.shape + (1,) * (self.dim() - mask.dim()))
    return aten.where.self(mask, values.reshape(()).to(self.device, self.dtype), self)


@kernel("index_put", "_unsafe_index_put")
def index_put(
    self: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """x.index_put(indices, values)."""
    from torch_pjrt.dispatch.table import row_kernel

    selected = _masked_fill_instead(self, list(indices), values, accumulate)
    if selected is not None:
        return selected
    given = [i for i in indices if i is not None]
    lone_mask = len(given) == 1 and _is_mask(given[0])
    if lone_mask:
        _refuse_mask(self, given[0], next(i for i, index in enumerate(indices) if index is not None))
    if values.device.type == "cpu" and values.numel() == 1:
        values = values.to(self.device)
    places = list(indices) if lone_mask and given[0].device == self.device else expand_masks(self, list(indices))
    arguments = (self, places, values, accumulate)
    template, outs = row_kernel("aten::index_put.default").step(arguments, {})
    return make_tensor(template.outs[0], outs[0])


@kernel("index_put_", "_index_put_impl_")
def index_put_(
    self: torch.Tensor,
    indices: list[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    """x[indices] = values."""
    refuse_shared("aten::index_put_", self, (*indices, values), UNSHARED_IN_PLACE)
    return self.copy_(index_put(self, indices, values, accumulate))


@kernel("bincount")
def bincount(self: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """How often each integer occurs; the largest of them, which is read, gives the size."""
    if self.dim() != 1 or self.is_floating_point() or minlength < 0:
        raise RuntimeError("bincount takes a 1-d tensor of non-negative integers and minlength >= 0")
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("bincount: weights should have the same length as input")
    size = minlength
    if self.numel():
        low, high = (int(v) for v in torch.stack(aten.aminmax.default(self)).tolist())
        if low < 0:
            raise RuntimeError("bincount: input has a negative element")
        size = max(size, high + 1)
    dtype = torch.int64
    if weights is not None:
        dtype = weights.dtype if weights.dtype in (torch.float32, torch.float64) else torch.float64
    each = torch.ones_like(self, dtype=dtype) if weights is None else weights.to(dtype)
    return torch.zeros(size, dtype=dtype, device=self.device).scatter_add(0, self.long(), each)


@kernel("repeat_interleave.Tensor")
def repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    """Position i, repeats[i] times; the total is read unless it is given."""
    from torch_pjrt.dispatch.table import row_kernel

    if output_size is None:
        low, output_size = torch.stack([repeats.min(), repeats.sum()]).tolist() if repeats.numel() else (0, 0)
        if low < 0:
            raise RuntimeError("repeats can not be negative")
    template, outs = row_kernel("aten::repeat_interleave.Tensor").step((repeats,), {"output_size": output_size})
    return make_tensor(template.outs[0], outs[0])


@kernel("_assert_async", "_assert_async.msg")
def assert_async(self: torch.Tensor, assert_msg: str = "Expected Tensor to be nonzero") -> None:
    """torch._assert_async: the one value is read now; inside a compiled graph nothing is."""
    if not recorder().capturing and not bool(self):
        raise RuntimeError(assert_msg)


@kernel("_functional_assert_async.msg")
def functional_assert_async(self: torch.Tensor, assert_msg: str, dep_token: torch.Tensor) -> torch.Tensor:
    """The same as graphs write it, with a token that keeps the order."""
    assert_async(self, assert_msg)
    return dep_token


@kernel("_ctc_loss.Tensor")
def ctc_loss(
    log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: torch.Tensor, target_lengths: torch.Tensor,
    blank: int = 0, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """CTC with lengths in tensors: they are read, since they decide sizes."""
    return aten._ctc_loss.default(
        log_probs, targets, input_lengths.tolist(), target_lengths.tolist(), blank, zero_infinity
    )


def register(library: torch.library.Library) -> None:
    """Register this module's kernels, and one for every dynamic row."""
    for name, fn in KERNELS.items():
        library.impl(name, fn, "PrivateUse1")
    for row in ROWS.values():
        short = row.name.removeprefix("aten::").removesuffix(".default")
        known = row.name.startswith("aten::") and find_overload(row.name) is not None
        if not (row.dynamic and known):
            continue
        if short not in KERNELS:
            library.impl(short, dynamic(row.name), "PrivateUse1")
        for overload in _out_overloads(row):
            if not torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeExplicitAutograd"):
                library.impl(overload.name().removeprefix("aten::"), dynamic_out(row.name, overload), "PrivateUse1")
