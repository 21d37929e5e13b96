"""Random numbers of activation checkpoints: AOTAutograd draws them in forward and again, from the saved state, in backward.

torch serves its own devices only. In a capture nothing has a state yet: which steps save one and which draw from one is
noted, and a call fills it in (captured.py).
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.compile.capture import states
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.tensor import random

_STATE_BYTES = 16


def save(op: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """The generator's state, and a random operator that moves it."""
    notes = states()
    if notes is None:
        return random.get_rng_state(), op(*args, **kwargs)
    step = len(recorder().steps)
    result = op(*args, **kwargs)
    step = next(i for i, s in enumerate(recorder().steps) if i >= step and s[0].draws)
    state = torch.zeros(_STATE_BYTES, dtype=torch.uint8)
    notes.saved.append((state, step))
    return state, result


def replay(state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
    """A random operator that draws from a saved state; the generator stays where it is."""
    notes = states()
    if notes is None:
        before = random.get_rng_state()
        random.set_rng_state(state)
        try:
            return op(*args, **kwargs)
        finally:
            random.set_rng_state(before)
    first = len(recorder().steps)
    result = op(*args, **kwargs)
    notes.replayed.append((first, len(recorder().steps) - first, state))
    return result


def register() -> None:
    """Give torch's two operators these meanings for tensors of the device."""
    from torch._prims import rng_prims

    key = torch._C.DispatchKey.BackendSelect
    ours = torch._C._get_privateuse1_backend_name()
    for op, kernel, skipped in ((rng_prims.run_and_save_rng_state, save, 1), (rng_prims.run_with_rng_state, replay, 2)):
        native = op.py_kernels[key]

        def choose(
            *args: Any, _native: Any = native, _kernel: Any = kernel, _skip: int = skipped, **kwargs: Any
        ) -> Any:
            where = rng_prims.get_device(args[_skip:], kwargs)
            return (_kernel if where == ours else _native)(*args, **kwargs)

        op.py_kernels[key] = choose
        op._dispatch_cache.clear()
