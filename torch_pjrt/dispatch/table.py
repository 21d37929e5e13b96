"""Which kernel each overload gets on our dispatch key. Filled once, when the device is first used.

Order: special kernels and views, then rows and what is derived from them (in-place, out=), foreach, and the boxed fallback.
An overload that gets nothing here is served by torch's composite kernel, or by the fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from torch_pjrt.dispatch import (
    absent_layouts,
    attention,
    data_dependent,
    foreach,
    internal,
    least_squares,
    mended,
    parts,
    sparse,
    sparse_make,
    special,
    views,
)
from torch_pjrt.dispatch.bits import left_to_us, resolving
from torch_pjrt.dispatch.kernels import RowKernel, functional, inplace, out_variant
from torch_pjrt.ops.refusals import AT_CALL
from torch_pjrt.ops.registry import Row, load_rows
from torch_pjrt.ops.schema import RENAMED_TWINS, find_overload, functional_twin, schema_of

_libraries: list[torch.library.Library] = []
row_kernels: dict[str, RowKernel] = {}


def row_kernel(name: str) -> RowKernel:
    """The kernel object of a row's functional overload, for code that records steps itself."""
    return row_kernels[name]


def _overloads_around(op: OpOverload) -> list[OpOverload]:
    """Every overload of the same operator and of its in-place twin."""
    namespace, packet = op._schema.name.split("::")
    found = []
    renamed = [name for name, twin in RENAMED_TWINS.items() if twin == packet]
    for name in (*renamed, packet, packet + "_", "__i" + packet.strip("_") + "__" if packet.startswith("__") else ""):
        holder = getattr(getattr(torch.ops, namespace), name, None) if name else None
        if holder is not None:
            found += [getattr(holder, overload) for overload in holder.overloads()]
    return found


def _register_row(library: torch.library.Library, row: Row, taken: set[str]) -> None:
    op = find_overload(row.name)
    if op is None:
        return
    kernel = RowKernel(op, row)
    row_kernels[row.name] = kernel
    if row.dynamic:
        return
    for overload in _overloads_around(op):
        name = f"{overload._schema.name}.{overload._overloadname}"
        if name in taken or functional_twin(overload) is not op:
            continue
        schema = schema_of(overload)
        if any(schema.arguments[i].kind.value == "tensors" for i in schema.writes):
            continue
        taken.add(name)
        make: Any = inplace if schema.writes and not schema.is_out else out_variant
        run = make(overload, kernel) if schema.writes else functional(kernel)
        if left_to_us(overload.name()):
            run = resolving(overload, run)
        if name in AT_CALL:
            run = _checking(AT_CALL[name], run)
        library.impl(name.removeprefix("aten::").removesuffix(".default"), run, "PrivateUse1")


def _checking(check: Callable[..., None], kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, after a check of the call's numbers."""

    def run(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return kernel(*args, **kwargs)

    return run


def fill() -> None:
    """Register everything. Called once."""
    library = torch.library.Library("aten", "IMPL")  # noqa: TOR901 - lives as long as the process
    _libraries.append(library)
    own = (*special.KERNELS, *data_dependent.KERNELS, *internal.KERNELS, *attention.KERNELS, *views.VIEW_OPS,
           *sparse_make.KERNELS, *parts.KERNELS)  # fmt: skip
    taken = {f"aten::{n}" if "." in n else f"aten::{n}.default" for n in own}
    internal.define()
    for row in load_rows().values():
        if row.name.startswith("aten::"):
            _register_row(library, row, taken)
    data_dependent.register(library)
    internal.register(library)
    attention.register(library)
    mended.register(library)
    parts.register(library)
    foreach.register(library)
    least_squares.register(library)
    absent_layouts.register(library)
    sparse.register(library)
