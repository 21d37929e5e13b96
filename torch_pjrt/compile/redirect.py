"""What torch.compile needs to know of the device: which backend serves it, and that its kernels are not to be traced.

Graphs on our device that torch.compile would give to Inductor come to our backend; all other graphs go on to Inductor.
torch.compile itself stays as it is: the objects that it makes for its backends are asked, per graph, where the graph's
tensors are. torch has no registration for a device's default backend; this stands in for one.
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_pjrt.compile import fake_layouts
from torch_pjrt.compile.present import present
from torch_pjrt.errors import IgnoredOptionWarning

_applied = False


def apply() -> None:
    """Install once. Does nothing on a torch that makes its backends otherwise."""
    global _applied
    if _applied:
        return
    _applied = True
    fake_layouts.install()
    _run_kernels_untraced()
    for name in ("_TorchCompileInductorWrapper", "_TorchCompileWrapper"):
        wrapper = getattr(torch, name, None)
        if wrapper is not None:
            wrapper.__init__ = _remembering(wrapper.__init__)
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is not None:
        wrapper.__call__ = _asking(wrapper.__call__)


def _remembering(original: Callable[..., None]) -> Callable[..., None]:
    """Inductor's wrapper turns the mode into options of its own, so the mode is kept beside them."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        leave_kernels_alone()
        original(self, *args, **kwargs)
        given = dict(zip(("mode", "options"), args)) | kwargs  # noqa: B905 - Inductor's arguments begin with these
        self._pjrt_asked = given.get("mode"), given.get("options")
        ours = getattr(self, "kwargs", None)  # what _TorchCompileWrapper gives to the backend that was named
        present.asked = (given.get("mode"), None) if ours is None else (ours.get("mode"), ours.get("options"))

    return init


def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, graph: Any, inputs: Any, **kwargs: Any) -> Any:
        from torch_pjrt.compile.backend import on_device, pjrt

        if not on_device(graph, inputs):
            return original(self, graph, inputs, **kwargs)
        mode, options = getattr(self, "_pjrt_asked", (None, None))
        if options:
            _say_ignored(tuple(options))
        return pjrt(graph, inputs, mode=mode)

    return call


@functools.cache
def _say_ignored(names: tuple[str, ...]) -> None:
    warnings.warn(
        f"options of Inductor have no effect on {torch._C._get_privateuse1_backend_name()}: {', '.join(names)}. "
        'The device\'s own are taken with backend="pjrt".',
        IgnoredOptionWarning,
        stacklevel=4,
    )


@functools.cache
def leave_kernels_alone() -> None:
    """Keep Dynamo out of this package and of JAX: after a graph break it would trace the kernels that eager ops run.

    One function of ours is called inside graphs (tensor/patches.py), and is traced.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.variables import UserFunctionVariable
    from torch.nn.attention import flex_attention

    for package in ("torch_pjrt", "jax"):
        trace_rules.add(package)
    trace_rules.get_torch_obj_rule_map()[flex_attention._validate_device] = UserFunctionVariable


def _run_kernels_untraced() -> None:
    """Keep Dynamo out of all that kernels call: leave_kernels_alone names packages, and the standard library is none of
    them. Eager ops in a function that Dynamo skips would have it trace contextlib and enum."""
    evaluator = torch._C._dynamo.eval_frame
    skip = evaluator._FrameAction.SKIP
    alone = evaluator._FrameExecStrategy(skip, skip)
    for name, module in list(sys.modules.items()):
        if name.startswith("torch_pjrt.dispatch."):
            for function in vars(module).values():
                if isinstance(function, types.FunctionType) and function.__module__ == name:
                    for code in _codes(function.__code__):
                        evaluator.set_code_exec_strategy(code, alone)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
