"""The device guard that torch's C++ side holds, and the errors that would end the process inside it.

torch asks a Python guard for its type whenever a stream guard goes out of scope, also while an exception of Python is on its
way through the autograd engine (one raised by a hook, or by a checkpoint's recomputation). Calling Python with an error set
fails, and in a noexcept function that aborts the process. So the guard takes the error aside and answers, and the engine, which
has then lost it, raises it where backward was called.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.variable import Variable

_PRIVATEUSE1: Any = torch._C._autograd.DeviceType.PrivateUse1
# A C function that takes -1 for its caller's mistake if, and only if, an error is already set: it raises that error.
_raise_pending: Any = "".zfill
_aside: list[BaseException] = []


class Guard(torch._C._acc.DeviceGuard):
    """The device guard: torch asks it for the type only."""

    def type_(self) -> Any:
        """PrivateUse1; an error that is set is taken aside first."""
        try:
            _raise_pending(-1)
        except BaseException as error:  # noqa: BLE001 - any error of the user's, to be raised by the engine
            _aside.append(error)
        return _PRIVATEUSE1


class _Engine(type(Variable._execution_engine)):  # type: ignore[misc]
    """torch's engine; raises what the guard took aside in place of the error that says that there is none."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().run_backward(*args, **kwargs)
        except SystemError:
            if not _aside:
                raise
            error = _aside.pop()
            _aside.clear()
        raise error


def install_engine() -> None:
    """Let torch.autograd run backward passes through the engine that knows what the guard took aside."""
    Variable._execution_engine = _Engine()
