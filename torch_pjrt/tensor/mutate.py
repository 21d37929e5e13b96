"""Writing: how a result becomes the new contents of an existing tensor.

Owns the two internal rows that writes are made of. In-place ops and out= arguments end here; so does copy_.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torch_pjrt.errors import OverlappingWriteError
from torch_pjrt.ops.registry import Row
from torch_pjrt.program.access import AccessPlan, write
from torch_pjrt.program.evaluate import cast
from torch_pjrt.program.program import Aval, OutSpec, Spec, Template
from torch_pjrt.tensor.layout import aval_of, contiguous_strides, has_overlap
from torch_pjrt.tensor.storage import Value, aval_of_tensor, cell_of


def _store(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    from jax import lax

    return lax.broadcast_in_dim(cast(value, dtype), shape, range(len(shape) - value.ndim, len(shape)))


def _write(base: Any, value: Any, plan: AccessPlan, starts: list[Any], platform: str) -> Any:
    from torch_pjrt.lowerings.arrays import computed_first

    return write(base, plan, list(starts), _store(computed_first(value, platform), plan.dtype, plan.size))


STORE = Row("pjrt::store", _store)
WRITE = Row("pjrt::write", _write, wants_platform=True)

_templates: dict[tuple[Any, ...], Template] = {}


def _payload_out(of: Spec) -> OutSpec:
    from torch_pjrt.ops.dtypes import FROM_NUMPY

    return OutSpec(of.shape, contiguous_strides(of.shape), FROM_NUMPY[of.dtype], None, of)


def _template(target: Aval, source: Aval) -> Template:
    """The step that puts what `source` reads into the payload behind `target`."""
    plan = target.plan
    if plan is None:
        bindings: tuple[tuple[str, Any], ...] = (
            ("value", ("in", 0)),
            ("dtype", ("const", target.np_dtype)),
            ("shape", ("const", target.size)),
        )
        avals: tuple[Aval, ...] = (source,)
        row, kinds, own = STORE, "", 0
    else:
        raw = aval_of(
            target.spec, target.spec.shape, contiguous_strides(target.spec.shape), 0, _payload_out(target.spec).dtype
        )[0]
        own = plan.num_starts
        bindings = (
            ("base", ("in", 0)),
            ("value", ("in", 1)),
            ("plan", ("const", plan)),
            ("starts", ("list", tuple(("num", i) for i in range(own)))),
        )
        avals = (raw, source)
        row, kinds = WRITE, "i" * own
    reads = "i" * (source.plan.num_starts if source.plan is not None else 0)
    return Template(
        row=row,
        bindings=bindings,
        avals=avals,
        number_kinds=reads + kinds,
        number_dtypes=(None,) * own,
        outs=(_payload_out(target.spec),),
        compute=None,
    )


def write_value(recorder: Any, tensor: torch.Tensor, value: Value, source: Aval, starts: tuple[int, ...] = ()) -> None:
    """Make `value`, read through `source`, the contents of `tensor` (broadcast and cast to it)."""
    cell = cell_of(tensor)
    old, target, target_starts = aval_of_tensor(tensor)
    if target.plan is None and source.plan is None and source.spec is target.spec:
        cell.value = value
        return
    if has_overlap(target.size, target.stride):
        raise OverlappingWriteError(
            f"a write to a tensor of shape {list(target.size)} and strides {list(target.stride)}, in which more than one "
            "element of the written-to tensor refers to a single memory location",
            todo="Clone the tensor before the write: x = x.clone().",
        )
    key = (target, source)
    template = _templates.get(key)
    if template is None:
        template = _templates[key] = _template(target, source)
    operands = [value] if target.plan is None else [old, value]
    (cell.value,) = recorder.record(template, operands, (*starts, *target_starts))


def aval_of_out(out: OutSpec) -> Aval:
    """How a step's result is read back as the tensor that torch says it is."""
    return aval_of(out.spec, out.size, out.stride, 0, out.dtype)[0]
