"""Fake tensors on our device are laid out as the device lays out real ones: by our meta kernels (ops/metadata.py).

torch's fake tensors ask torch's meta kernels, and for convolutions the libraries of torch's own devices. Where ours say
otherwise, a graph would hold strides, and views that follow from them, that the program then does not have. Comparing open
sizes makes guards; sizes that nobody knows are left to torch. Installed by redirect.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from torch_pjrt.ops.metadata import IN_GRAPHS, OVERRIDES


def install() -> None:
    """Put our meta kernels before what fake tensors ask. Does nothing on a torch that keeps them otherwise."""
    from torch._subclasses import fake_impls

    checks = getattr(fake_impls, "op_implementations_checks", None)
    if checks is not None:
        checks.insert(0, (_has_ours, _answer))


def _name(op: OpOverload) -> str:
    return f"{op._schema.name}.{op._overloadname}"


def _has_ours(op: OpOverload) -> bool:
    return _name(op) in IN_GRAPHS


def _answer(mode: Any, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """What our meta kernel says, as fake tensors; NotImplemented where torch is to answer."""
    from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    ours = torch._C._get_privateuse1_backend_name()
    devices = {t.fake_device for t in tensors if isinstance(t, FakeTensor) and t.dim()}
    if {d.type for d in devices} != {ours} or not _are_known(tensors):
        return NotImplemented
    kernel: Callable[..., Any] = OVERRIDES[_name(op)]
    try:
        with in_kernel_invocation_manager(mode):
            results = kernel(*args, **kwargs)
    except NotImplementedError:
        return NotImplemented
    (device,) = devices
    return tree_map(lambda t: FakeTensor(mode, t, device) if isinstance(t, torch.Tensor) else t, results)


def _are_known(tensors: list[torch.Tensor]) -> bool:
    """Whether the sizes are numbers, or such that comparing them becomes a guard."""
    from torch.fx.experimental.symbolic_shapes import has_guarding_hint

    return all(has_guarding_hint(n) for t in tensors for n in _places(t) if isinstance(n, torch.SymInt))


def _places(tensor: torch.Tensor) -> Iterator[Any]:
    yield from tensor.shape
    yield from tensor.stride()
