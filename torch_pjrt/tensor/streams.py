"""Streams and events of the device.

The device runs one queue in the order of the program, so streams carry identity and order only: work put on one is
always after everything recorded before it, and waiting of one stream for another has nothing left to do. Events are
honest about time: a timing event waits, when it is recorded, until everything before it is done on the device, and
reads the clock then. `query` answers the truth by waiting for it.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, TypeAlias

import torch

from torch_pjrt.tensor import runtime

Device: TypeAlias = torch.device | str | int | None

NativeStream: Any = torch._C.Stream if hasattr(torch._C, "Stream") else torch.Stream
NativeEvent: Any = torch._C.Event if hasattr(torch._C, "Event") else torch.Event

_PRIVATEUSE1 = 20  # c10::DeviceType::PrivateUse1
_ids = itertools.count(1)
_event_ids = itertools.count(1)
_current = threading.local()
_default: PjrtStream | None = None


class PjrtStream(NativeStream):
    """A torch.Stream of our device. Made by `torch.Stream(device="pjrt")` or `torch.pjrt.Stream()`."""

    def __new__(cls, device: Device = None, priority: int = 0, *, stream_id: int | None = None, **_: Any) -> PjrtStream:
        check_device(device)
        number = next(_ids) if stream_id is None else stream_id
        return super().__new__(cls, stream_id=number, device_index=0, device_type=_PRIVATEUSE1)

    def synchronize(self) -> None:
        """Wait until all work recorded so far is done."""
        synchronize()

    def query(self) -> bool:
        """Whether all work is done: waits for it, so that the answer is true."""
        synchronize()
        return True

    def record_event(self, event: Any = None) -> Any:
        """Record an event (a new one if none is given) behind the work of now."""
        event = PjrtEvent() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Work recorded from now on is behind the event: it is already, in the one queue."""

    def wait_stream(self, stream: Any) -> None:
        """Work recorded from now on is behind that of the other stream: it is already, in the one queue."""

    def is_capturing(self) -> bool:
        """Graph capture is no concept of this device."""
        return False

    def __enter__(self) -> PjrtStream:
        _stack().append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        set_stream(_stack().pop())


class PjrtEvent(NativeEvent):
    """A torch.Event of our device. Made by `torch.Event(device="pjrt")` or `torch.pjrt.Event()`."""

    _at: int | None

    def __new__(
        cls,
        device: Device = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> PjrtEvent:
        check_device(device)
        if interprocess:
            raise NotImplementedError("events of the pjrt device cannot be shared between processes")
        self: PjrtEvent = super().__new__(cls, device=runtime.device(), enable_timing=enable_timing)
        self._timing = enable_timing
        self._at = None
        self._recorded = False
        self._id = next(_event_ids)
        return self

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    @property
    def device(self) -> torch.device:
        """Our device."""
        return runtime.device()

    @property
    def event_id(self) -> int:
        """A number of this event's own."""
        return self._id

    def record(self, stream: Any = None) -> None:
        """Mark this point. With timing: wait until everything before it is done, and read the clock."""
        self._recorded = True
        if self._timing:
            synchronize()
            self._at = time.perf_counter_ns()

    def synchronize(self) -> None:
        """Wait until everything before the mark is done."""
        if self._recorded and not self._timing:
            synchronize()

    def query(self) -> bool:
        """Whether everything before the mark is done: waits for it, so that the answer is true."""
        self.synchronize()
        return True

    def wait(self, stream: Any = None) -> None:
        """Make a stream's coming work wait for the mark: it does already, in the one queue."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to another, both recorded with timing."""
        if not (self._timing and getattr(end_event, "_timing", False)):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(end_event._at - self._at) / 1e6

    def ipc_handle(self) -> bytes:
        """Not possible: raises."""
        raise NotImplementedError("events of the pjrt device cannot be shared between processes")

    def __repr__(self) -> str:
        return f"torch.Event device_type={self.device.type}, device_index=0, event_id={self._id}"


class StreamContext:
    """Make a stream the current one for a block; None leaves things as they are."""

    def __init__(self, stream: Any):
        self.stream = stream

    def __enter__(self) -> StreamContext:
        if self.stream is not None:
            self.stream.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc_info)


def stream(stream: Any) -> StreamContext:
    """`with torch.pjrt.stream(s):` makes s the current stream."""
    return StreamContext(stream)


def default_stream(device: Device = None) -> PjrtStream:
    """The stream that is current when none has been set."""
    global _default
    check_device(device)
    if _default is None:
        _default = PjrtStream(stream_id=0)
    return _default


def current_stream(device: Device = None) -> PjrtStream:
    """This thread's stream."""
    check_device(device)
    found: PjrtStream | None = getattr(_current, "stream", None)
    return default_stream() if found is None else found


def set_stream(stream: Any) -> None:
    """Make a stream this thread's; None is ignored, as torch.cuda has it."""
    if stream is not None:
        _current.stream = stream


def synchronize(device: Device = None) -> None:
    """Wait until all recorded work is done; raise what went wrong on the device. Does nothing before the first use."""
    check_device(device)
    runtime.check_fork()
    if runtime.started():
        runtime.runtime().synchronize()


def check_device(device: Device) -> None:
    """Refuse a device of another kind, or an index other than 0: one process drives one device."""
    if device is None or device == 0:
        return
    if isinstance(device, int):
        _check_index(device)
        return
    if not isinstance(device, torch.device):
        device = torch.device(device)
    ours = runtime.device().type
    if device.type != ours:
        raise ValueError(f"Expected a {ours} device, but got: {device}")
    if device.index is not None:
        _check_index(device.index)


def _check_index(index: int) -> None:
    if index > 0:
        name = runtime.device().type
        raise RuntimeError(
            f"invalid device ordinal {index}: a process drives one {name} device, {name}:0. "
            "Start one process for each chip (torchrun)."
        )


def _stack() -> list[PjrtStream]:
    found: list[PjrtStream] | None = getattr(_current, "stack", None)
    if found is None:
        found = _current.stack = []
    return found
