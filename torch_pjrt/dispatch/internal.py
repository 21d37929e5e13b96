"""Operators of our own, torch.ops.pjrt.*: what several ATen operators are made of, with a schema so that they bind alike.

Owns their definition, the kernels of those that stand in graphs of torch.export, and the ATen operators that are one row
plus writes that the row cannot say: training batch norm, rrelu with its noise.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.dispatch.kernels import RowKernel, functional, store
from torch_pjrt.lowerings import creation, recurrence
from torch_pjrt.lowerings.optimizer import SCHEMAS
from torch_pjrt.ops.metadata import OVERRIDES
from torch_pjrt.ops.registry import ROWS
from torch_pjrt.ops.schema import find_overload
from torch_pjrt.tensor.storage import make_tensor

_BATCH_NORM = (
    "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_IN_GRAPHS = {**recurrence.SCHEMAS, **creation.OPEN_SCHEMAS}  # called as torch.ops.pjrt.*, on fake tensors too
_libraries: list[torch.library.Library] = []
_kernels: dict[str, RowKernel] = {}


def define() -> None:
    """Define the operators. Called once, before their rows are bound."""
    library = torch.library.Library("pjrt", "DEF")  # noqa: TOR901 - lives as long as the process
    _libraries.append(library)
    for name, rest in {**SCHEMAS, "batch_norm_train": _BATCH_NORM, **_IN_GRAPHS}.items():
        library.define(name + rest)


def internal(name: str) -> RowKernel:
    """The kernel of pjrt::name ("adamw_step.tensor_lr")."""
    full = f"pjrt::{name}" if "." in name else f"pjrt::{name}.default"
    kernel = _kernels.get(full)
    if kernel is None:
        op = find_overload(full)
        assert op is not None
        kernel = _kernels[full] = RowKernel(op, ROWS[full])
    return kernel


def native_batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Batch norm; in training the running statistics are written, which the schema does not say."""
    from torch_pjrt.dispatch.kernels import results_of
    from torch_pjrt.dispatch.table import row_kernel

    if not training or running_mean is None or running_var is None:
        everything = (input, weight, bias, running_mean, running_var, training, momentum, eps)
        return results_of(*row_kernel("aten::native_batch_norm.default").step(everything, {}))  # type: ignore[no-any-return]
    arguments = (input, weight, bias, running_mean, running_var, momentum, eps)
    template, outs = internal("batch_norm_train").step(arguments, {})
    store(running_mean, template.outs[3], outs[3], "native_batch_norm")
    store(running_var, template.outs[4], outs[4], "native_batch_norm")
    return tuple(make_tensor(o, v) for o, v in zip(template.outs[:3], outs[:3], strict=True))


def legit_batch_norm(input: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
    """_native_batch_norm_legit: the same, with a schema that says it."""
    return native_batch_norm(input, *rest)


def legit_batch_norm_out(
    *args: Any, out: torch.Tensor, save_mean: torch.Tensor, save_invstd: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The same into given tensors."""
    targets = (out, save_mean, save_invstd)
    for target, result in zip(targets, native_batch_norm(*args), strict=True):
        target.resize_(result.shape)
        target.copy_(result)
    return targets


def _rrelu(self: torch.Tensor, noise: torch.Tensor, *rest: Any, **kwargs: Any) -> tuple[Any, Any]:
    """One step of rrelu with its slopes written to noise; gives the result's OutSpec and Value."""
    from torch_pjrt.dispatch.table import row_kernel

    template, outs = row_kernel("aten::rrelu_with_noise_functional.default").step((self, noise, *rest), kwargs)
    store(noise, template.outs[1], outs[1], "rrelu_with_noise")
    return template.outs[0], outs[0]


def rrelu_with_noise(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Leaky ReLU with random slopes, which are written to noise."""
    return make_tensor(*_rrelu(*args, **kwargs))


def rrelu_with_noise_(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The same in place."""
    store(self, *_rrelu(self, *args, **kwargs), "rrelu_with_noise_")
    return self


def rrelu_with_noise_out(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """The same into `out`."""
    result, value = _rrelu(*args, **kwargs)
    if out.shape != result.size:
        out.resize_(result.size)
    store(out, result, value, "rrelu_with_noise")
    return out


KERNELS = {
    "native_batch_norm": native_batch_norm,
    "_native_batch_norm_legit": legit_batch_norm,
    "_native_batch_norm_legit.out": legit_batch_norm_out,
    "rrelu_with_noise": rrelu_with_noise,
    "rrelu_with_noise_": rrelu_with_noise_,
    "rrelu_with_noise.out": rrelu_with_noise_out,
}


def register(library: torch.library.Library) -> None:
    """Register this module's kernels."""
    for name, fn in KERNELS.items():
        library.impl(name, fn, "PrivateUse1")
    for name in _IN_GRAPHS:
        _libraries[0].impl(name, functional(internal(name)), "PrivateUse1")
        _libraries[0].impl(name, OVERRIDES[f"pjrt::{name}.default"], "Meta")
