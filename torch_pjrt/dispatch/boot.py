"""The few kernels that exist before the device is used: making a tensor, and the fallback. They load the rest.

Imported by the autoload entry point, so it must not import JAX. Every device tensor is born in one of these kernels, so
by the time any other operator sees one, the whole table is filled.
"""

from __future__ import annotations

from typing import Any

import torch

_libraries: list[torch.library.Library] = []


def _load_and(name: str) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        from torch_pjrt.dispatch import special
        from torch_pjrt.tensor.runtime import runtime

        runtime()
        return special.KERNELS[name](*args, **kwargs)

    return run


# Makers with a row of their own: without a loading kernel the first call would take torch's composite route, and the
# second another program.
_FACTORIES = ("ones", "zeros", "full", "rand", "randn", "randint", "randint.low", "randperm", "eye", "scalar_tensor")


def _load_and_repeat(name: str) -> Any:
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def run(*args: Any, **kwargs: Any) -> Any:
        from torch_pjrt.tensor.runtime import runtime

        runtime()
        return op(*args, **kwargs)

    return run


def _fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    from torch_pjrt.tensor.runtime import started

    if not started():
        from torch_pjrt.tensor.runtime import runtime

        runtime()
        return op(*args, **kwargs)
    from torch_pjrt.dispatch.fallback import boxed

    return boxed(op, *args, **kwargs)


def register() -> None:
    """Register the loading kernels."""
    library = torch.library.Library("aten", "IMPL")  # noqa: TOR901 - lives as long as the process
    for name in ("empty.memory_format", "empty_strided"):
        library.impl(name, _load_and(name), "PrivateUse1")
    for name in _FACTORIES:
        library.impl(name, _load_and_repeat(name), "PrivateUse1")
    for key in ("Conjugate", "Negative"):
        library.impl("_copy_from", torch.library.fallthrough_kernel, key)
    everything = torch.library.Library("_", "IMPL")  # noqa: TOR901
    everything.fallback(_fallback, "PrivateUse1")
    _libraries.extend((library, everything))
