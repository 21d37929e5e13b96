"""The conj and neg bits: tensors whose memory holds the conjugate or the negative of what they mean.

torch works the bits out before most operators run. Those that it leaves to the device (clone, copy_, mm, dot, ...) are
wrapped here, so that rows see plain values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from torch_pjrt.ops.schema import functional_twin, schema_of

aten = torch.ops.aten


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its bits worked out."""
    if tensor.is_conj():
        tensor = aten._conj_physical.default(torch._conj(tensor))
    if tensor.is_neg():
        tensor = aten.neg.default(torch._neg_view(tensor))
    return tensor


def left_to_us(name: str) -> bool:
    """Whether torch lets an overload see the bits ("aten::mm")."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if not torch._C._dispatch_has_kernel(name):  # known to TorchScript only
        return False
    return has(name, "Conjugate") or has(name, "Negative")


def _has_bits(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())


def resolving(op: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, given plain tensors; one that would write a tensor with bits writes through copy_."""
    schema = schema_of(op)
    names = [a.name for a in schema.arguments]
    written = {names[i] for i in schema.writes}

    def run(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args), **kwargs)  # noqa: B905 - trailing defaults are left out
        if not any(map(_has_bits, given.values())):
            return kernel(*args, **kwargs)
        values = {n: plain(v) if _has_bits(v) else v for n, v in given.items()}
        targets = [given[n] for n in written if _has_bits(given[n])]
        if not targets:
            return kernel(*(values[n] for n in names[: len(args)]), **{k: values[k] for k in kwargs})
        twin = functional_twin(op)
        assert twin is not None and len(written) == 1
        return targets[0].copy_(twin(**{n: v for n, v in values.items() if not schema.is_out or n not in written}))

    return run
