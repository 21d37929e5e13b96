"""What happens to an overload without a kernel: torch's decomposition if there is one, else the CPU, counted.

The boxed fallback of PrivateUse1 lands here. In-place and out= overloads go through their functional twin, so every
argument that the schema marks as written is written.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from torch_pjrt.config import settings
from torch_pjrt.counters import counters, forbidden
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.dispatch.lines import show, user_line
from torch_pjrt.errors import FallbackError, FallbackWarning, UnsupportedOpError
from torch_pjrt.ops.decompose import decomposition_of
from torch_pjrt.ops.schema import functional_twin, schema_of
from torch_pjrt.ops.unsupported import refusal_of
from torch_pjrt.tensor.random import stand_in
from torch_pjrt.tensor.transfer import to_cpu


def boxed(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The kernel of every overload that has no other."""
    if op in _within():  # a decomposition that ends in the very op it decomposes
        return on_cpu(op, args, kwargs)
    schema = schema_of(op)
    twin = functional_twin(op) if schema.writes else op
    whole = decomposition_of(op)
    part = None if twin is None or twin is op else way_of_twin(twin)
    if whole is None and part is None:
        return on_cpu(op, args, kwargs)
    _within().append(op)
    try:
        return whole(*args, **kwargs) if whole is not None else _through_twin(op, part, args, kwargs)
    finally:
        _within().pop()


def way_of_twin(twin: OpOverload) -> Callable[..., Any] | None:
    """How to compute the functional twin of an overload that writes: its decomposition, or itself if it has a kernel."""
    keys = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    has_kernel = any(torch._C._dispatch_has_kernel_for_dispatch_key(twin.name(), key) for key in keys)
    return decomposition_of(twin) or (twin if has_kernel else None)


_stack = threading.local()


def _within() -> list[OpOverload]:
    """The ops whose decompositions run in this thread now."""
    if not hasattr(_stack, "ops"):
        _stack.ops = []
    return _stack.ops  # type: ignore[no-any-return]


def _through_twin(op: OpOverload, twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    schema = schema_of(op)
    names = [schema.arguments[i].name for i in schema.writes]
    if schema.is_out:
        targets = [kwargs.pop(n) for n in names]
    else:
        targets = [args[i] for i in schema.writes]
    result = twin(*args, **kwargs)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    for target, new in zip(targets, results, strict=False):
        _write_back(target, new)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _write_back(target: Any, new: Any) -> None:
    if isinstance(target, (list, tuple)):
        for one, fresh in zip(target, new, strict=True):
            _write_back(one, fresh)
    elif isinstance(target, torch.Tensor):
        if target.shape != new.shape:
            target.resize_(new.shape)
            if torch.empty_like(new, device="meta").stride() == new.stride():  # dense, in whatever order
                target.as_strided_(new.shape, new.stride())
        target.copy_(new)


def _is_device(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == torch._C._get_privateuse1_backend_name()


def on_cpu(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an overload on the CPU: operands down, results up, written arguments written back. Counted by op."""
    name = f"{op._schema.name}.{op._overloadname}"
    refusal = refusal_of(name)
    if refusal is not None:
        raise UnsupportedOpError(
            f"{name} cannot run on the device: {refusal.why}", where=show(user_line()), todo=refusal.instead
        )
    _allow(name)
    ours = torch.device(torch._C._get_privateuse1_backend_name(), 0)
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    written = {id(t) for t in _written(op, args, kwargs)}

    def down(x: Any) -> Any:
        if not _is_device(x):
            return torch.device("cpu") if isinstance(x, torch.device) and x.type == ours.type else x
        host = to_cpu(recorder(), x, f"fallback of {name}")
        host = host.clone() if id(x) in written else host  # an out= argument may have to grow
        pairs.append((x, host))
        return host

    host_args, host_kwargs = tree_map(down, (args, kwargs))
    try:
        with stand_in(op, host_args, host_kwargs) as (host_args, host_kwargs):
            result = op(*host_args, **host_kwargs)
    except NotImplementedError as error:
        raise UnsupportedOpError(
            f"{name} has no lowering here, and the CPU cannot run it either",
            where=show(user_line()),
            todo="Report it, or write it with other operators.",
            detail=str(error).splitlines()[0],
        ) from error
    replaced: dict[int, torch.Tensor] = {}
    for device_tensor, host in pairs:
        if id(device_tensor) in written:
            _write_back(device_tensor, host)
            replaced[id(host)] = device_tensor

    def up(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return replaced.get(id(x)) if id(x) in replaced else x.to(ours)

    return tree_map(up, result)


def _written(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for i in schema_of(op).writes:
        argument = schema_of(op).arguments[i]
        value = kwargs.get(argument.name) if argument.kwarg_only or i >= len(args) else args[i]
        found += value if isinstance(value, (list, tuple)) else [value] if value is not None else []
    return found


def _allow(name: str) -> None:
    line = show(user_line(2))
    policy = settings.cpu_fallback
    if policy == "error" or forbidden.fallback:
        raise FallbackError(
            f"{name} has no lowering and would run on the CPU, which is forbidden",
            where=line,
            todo="Set TORCH_PJRT_CPU_FALLBACK=warn to allow it, or write it with other operators.",
        )
    if policy == "warn" and name not in counters.fallbacks:
        warnings.warn(
            f"{name} has no lowering and runs on the CPU (said once; first at {line})", FallbackWarning, stacklevel=3
        )
    counters.fallbacks[name] += 1
    counters.fallback_lines[f"{name} at {line}"] += 1
