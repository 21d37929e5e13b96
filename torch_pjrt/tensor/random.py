"""Generators of the device: who they are, their states, and how random ops take their share of bits.

A state is (seed, offset) of a Philox stream; the offset counts 32-bit words and stays a multiple of 4, as PyTorch has
it on CUDA, so the 16-byte state tensor (seed u64, offset u64) is what DTensor and checkpoints expect. torch's C++
generators for out-of-tree devices cannot be made from Python, so ours wrap a CPU one whose numbers nobody draws: it
passes torch's argument parser, and its `_cdata` finds the state again on the far side of the dispatcher.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import weakref
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch

from torch_pjrt.errors import DeviceMismatchError
from torch_pjrt.tensor.runtime import device as our_device

_U64 = 1 << 64
_STATE = struct.Struct("<QQ")
_lock = threading.Lock()

Device: TypeAlias = torch.device | str | int | None


class State:
    """The position in one random stream. Mutable; changed under this module's lock."""

    __slots__ = ("__weakref__", "offset", "seed")

    def __init__(self, seed: int | None = None, offset: int = 0):
        self.seed = _fresh_seed() if seed is None else seed
        self.offset = offset

    def __repr__(self) -> str:
        return f"State(seed={self.seed}, offset={self.offset})"


_Native: Any = torch._C.Generator


class PjrtGenerator(_Native):
    """A torch.Generator of our device. Made by `torch.Generator(device="pjrt")`."""

    __slots__ = ("_state",)
    _state: State

    def __new__(cls, state: State | None = None) -> PjrtGenerator:
        self = super().__new__(cls)
        self._state = State() if state is None else state
        cdata = self._cdata
        _states[cdata] = self._state
        weakref.finalize(self, _states.pop, cdata, None).atexit = False
        return self

    def __init__(self, state: State | None = None):
        super().__init__()

    @property
    def device(self) -> torch.device:
        """Our device."""
        return our_device()

    def manual_seed(self, seed: int) -> PjrtGenerator:
        """Start the stream of this seed. Negative seeds count from 2**64, as torch has it."""
        with _lock:
            self._state.seed, self._state.offset = _checked_seed(seed), 0
        return self

    def seed(self) -> int:
        """Start a stream nobody knows, and say its seed."""
        return self.manual_seed(_fresh_seed()).initial_seed()

    def initial_seed(self) -> int:
        """The seed of the present stream."""
        return self._state.seed

    def get_state(self) -> torch.Tensor:
        """The state: a CPU uint8 tensor of 16 bytes, seed then offset, little-endian."""
        with _lock:
            packed = _STATE.pack(self._state.seed, self._state.offset)
        return torch.frombuffer(bytearray(packed), dtype=torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> PjrtGenerator:
        """Take a state that `get_state` gave."""
        seed, offset = _unpack(new_state)
        with _lock:
            self._state.seed, self._state.offset = seed, offset
        return self

    def get_offset(self) -> int:
        """32-bit words drawn so far."""
        return self._state.offset

    def set_offset(self, offset: int) -> PjrtGenerator:
        """Move within the stream; a multiple of 4."""
        if offset < 0 or offset % 4:
            raise RuntimeError(f"offset must be a non-negative multiple of 4, got {offset}")
        with _lock:
            self._state.offset = offset
        return self

    def clone_state(self) -> PjrtGenerator:
        """A new generator at the same position of the same stream."""
        with _lock:
            return PjrtGenerator(State(self._state.seed, self._state.offset))

    def graphsafe_get_state(self) -> PjrtGenerator:
        """A generator that shares this one's state."""
        return PjrtGenerator(self._state)

    def graphsafe_set_state(self, state: torch.Generator) -> PjrtGenerator:
        """Share the state of another generator of this device from now on."""
        self._state = state_of(state)
        _states[self._cdata] = self._state
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_generator, (self._state.seed, self._state.offset)

    def __deepcopy__(self, memo: dict[int, Any]) -> PjrtGenerator:
        return self.clone_state()

    def __repr__(self) -> str:
        return f"<torch.Generator on {self.device}, seed {self._state.seed}, offset {self._state.offset}>"


_states: dict[int, State] = {}
_default: PjrtGenerator | None = None


def default_generator() -> PjrtGenerator:
    """The generator that random ops use when they are given none."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = PjrtGenerator()
    return _default


def default_state() -> State:
    """The state of the default generator."""
    return default_generator()._state


def state_of(generator: torch.Generator | None) -> State:
    """The state of a generator as it comes through the dispatcher; None is the default one.

    Raises DeviceMismatchError for a generator of another device.
    """
    if generator is None:
        return default_state()
    state = _states.get(generator._cdata)  # type: ignore[attr-defined]
    if state is None:
        wanted = our_device().type
        raise DeviceMismatchError(
            f"Expected a '{wanted}' device type for generator but found '{generator.device.type}'",
            todo=f'Make it with torch.Generator(device="{wanted}").',
        )
    return state


def take(state: State, words: int) -> tuple[int, int]:
    """The (seed, offset) at which an op that needs so many 32-bit words starts; the state moves behind them."""
    with _lock:
        start = state.offset
        state.offset = (start + (words + 3) // 4 * 4) % _U64
        return state.seed, start


@contextlib.contextmanager
def stand_in(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """For a random op that runs on the CPU: arguments in which a CPU generator stands in, seeded from our stream.

    Ops that take no generator draw from the CPU's default one, which is seeded for the block and put back.
    """
    if torch.Tag.nondeterministic_seeded not in op.tags:
        yield args, kwargs
        return
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)]
    seed, offset = take(state_of(given[0] if given else None), 4)
    mixed = (seed + offset * 0x9E3779B97F4A7C15) % _U64
    host = torch.Generator().manual_seed(mixed - (_U64 if mixed >= _U64 // 2 else 0))
    if any(argument.name == "generator" for argument in op._schema.arguments):
        if any(isinstance(each, torch.Generator) for each in args):
            yield tuple(host if isinstance(each, torch.Generator) else each for each in args), kwargs
        else:
            yield args, {**kwargs, "generator": host}
        return
    before = torch.get_rng_state()
    torch.set_rng_state(host.get_state())
    try:
        yield args, kwargs
    finally:
        torch.set_rng_state(before)


def manual_seed(seed: int) -> None:
    """Seed the default generator."""
    default_generator().manual_seed(seed)


def seed() -> int:
    """Seed the default generator with a number nobody knows; returns it."""
    return default_generator().seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator().initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """The default generator's state: 16 bytes, seed then offset."""
    return default_generator().get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Take a state that `get_rng_state` gave."""
    default_generator().set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices of this process: one."""
    return [get_rng_state()]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Take the states that `get_rng_state_all` gave; a checkpoint of several devices gives its first."""
    if len(new_states):
        set_rng_state(new_states[0])


def _fresh_seed() -> int:
    return int.from_bytes(os.urandom(8), "little") & ((1 << 53) - 1)


def _checked_seed(seed: int) -> int:
    seed = int(seed)
    if not -(1 << 63) <= seed < _U64:
        raise ValueError("Overflow when unpacking long long")
    return seed % _U64


def _unpack(state: torch.Tensor) -> tuple[int, int]:
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
        raise TypeError("expected a torch.ByteTensor as RNG state")
    if state.numel() != _STATE.size:
        raise RuntimeError(f"RNG state is wrong size: {_STATE.size} bytes (seed, offset) wanted, {state.numel()} given")
    found = _STATE.unpack(bytes(state.cpu().tolist()))
    return found[0], found[1]


def _rebuild_generator(seed: int, offset: int) -> PjrtGenerator:
    return PjrtGenerator(State(seed, offset))
