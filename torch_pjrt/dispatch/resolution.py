"""How every ATen overload is served, said without running anything: the order of dispatch/table.py and fallback.py, read off.

Called by cli/ops_page.py, which writes docs/ops.md.
"""

from __future__ import annotations

import enum
from functools import cache

import torch
from torch._ops import OpOverload

from torch_pjrt.dispatch.fallback import way_of_twin
from torch_pjrt.dispatch.views import VIEW_OPS
from torch_pjrt.ops.decompose import DECOMPOSITIONS, decomposition_of
from torch_pjrt.ops.registry import load_rows
from torch_pjrt.ops.schema import functional_twin, schema_of
from torch_pjrt.ops.unsupported import refusal_of

_has = torch._C._dispatch_has_kernel_for_dispatch_key


class Served(enum.Enum):
    """The ways in which an overload can be served, best first."""

    ROW = "row"  # a row of the lowering table
    DERIVED = "derived"  # the row of its functional twin, then a write
    KERNEL = "kernel"  # a kernel of ours over rows: copies, list operators, indexing with masks
    VIEW = "view"  # metadata only
    COMPOSITE = "composite"  # torch's own implementation in other operators
    DECOMPOSITION = "decomposition"  # ours, or the one of torch's table
    FALLBACK = "fallback"  # the CPU, counted
    REFUSED = "refused"  # with the reason (ops/unsupported.py), or because the CPU has none either for dense tensors


def served(op: OpOverload) -> Served:
    """How one overload is served. The device's kernel table must be filled (torch_pjrt.tensor.runtime.runtime())."""
    name = op.name() if "." in op.name().split("::")[1] else f"{op.name()}.default"
    rows = load_rows()
    twin = functional_twin(op)
    if _has(op.name(), "PrivateUse1"):
        if name in rows:
            return Served.ROW
        if name.removeprefix("aten::") in VIEW_OPS:
            return Served.VIEW
        derived = twin is not None and f"{twin._schema.name}.{twin._overloadname}" in rows
        return Served.DERIVED if derived else Served.KERNEL
    if any(_has(op.name(), k) for k in ("CompositeImplicitAutograd", "CompositeExplicitAutograd")):
        view = schema_of(op).is_view
        return Served.VIEW if view else Served.COMPOSITE
    if _has(op.name(), "CompositeExplicitAutogradNonFunctional") and name not in DECOMPOSITIONS:
        return Served.COMPOSITE
    if decomposition_of(op) is not None or (twin not in (None, op) and way_of_twin(twin) is not None):
        return Served.DECOMPOSITION
    if refusal_of(name) is not None:
        return Served.REFUSED
    return Served.FALLBACK if _has(op.name(), "CPU") else Served.REFUSED


@cache
def overloads() -> tuple[OpOverload, ...]:
    """Every ATen overload that this torch can call, by name."""
    found = []
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        if not full.startswith("aten::") or not torch._C._dispatch_has_kernel(full):
            continue
        if full.startswith(("aten::_test_", "aten::_foobar")):  # torch's own tests of its dispatcher
            continue
        packet, _, overload = full.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if isinstance(op, OpOverload):
            found.append(op)
    return tuple(found)
