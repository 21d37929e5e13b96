"""Entries of op_db with their samples perturbed: other strides and offsets, NaN and infinities, sizes 0 and 1, negative dims.

Entries are drawn with a fixed seed. CPU torch decides: where it gives a result, the device gives the same; where it refuses,
the device does not have to.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from conformance.accuracy import compare
from conformance.checks import is_factory
from conformance.nodes import entries
from conformance.operands import Arguments, arguments_of, on_cpu, on_device, widened
from conformance.quirks import EMPTY, HOST_OPERANDS, RANDOM, STATISTICS, TIED, UNLIKE_STRIDES

QUICK, ALL = 10, 60
# Algorithms that mix all elements: where NaN goes, and what overflows, depends on the order in which they do so.
MIXING = (
    "fft.",
    "linalg.",
    "cholesky",
    "nn.functional.interpolate",
    "nn.functional.upsample",
    "lu",
    "qr",
    "svd",
    "geqrf",
    "nn.functional.batch_norm",
    "stft",
)
# Entries whose perturbed samples CPU torch answers in a way that is no model, or leaves free.
UNLIKE = frozenset(
    """
    addmv chalf linalg.eigh lu_unpack nn.functional.gelu nn.functional.pixel_unshuffle
    """.split()
)  # an empty sum has the operand's size; no complex32; signs; pivots that do not fit; NaN at inf; sizes that do not divide


def _strided(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The same values with dims laid out in another order, with gaps."""
    if x.dim() == 0:
        return x
    order = list(range(x.dim()))
    rng.shuffle(order)
    room = torch.zeros([x.shape[d] + 1 for d in order], dtype=x.dtype)
    view = room.permute([order.index(d) for d in range(x.dim())])[tuple(slice(1, None) for _ in order)]
    return view.copy_(x.detach())


def _special(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """NaN and both infinities in the place of some values."""
    if not x.is_floating_point() or x.numel() == 0:
        return x
    x = x.detach().clone()
    for value in (float("nan"), float("inf"), -float("inf")):
        x.view(-1)[rng.randrange(x.numel())] = value
    return x


def _extreme(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Zeros of both signs, and the smallest and largest numbers."""
    if not x.is_floating_point() or x.numel() == 0:
        return x
    x, info = x.detach().clone(), torch.finfo(x.dtype)
    for value in (0.0, -0.0, info.max, -info.max, info.tiny):
        x.view(-1)[rng.randrange(x.numel())] = value
    return x


def _values(change: Callable[[torch.Tensor, random.Random], torch.Tensor]) -> Callable[..., Arguments]:
    def run(given: Arguments, rng: random.Random) -> Arguments:
        return tree_map(lambda x: change(x.contiguous(), rng) if isinstance(x, torch.Tensor) else x, given)  # type: ignore[no-any-return]

    return run


def _one_size(size: int) -> Callable[..., Arguments]:
    """One length everywhere, the same in all operands, made 0 or 1."""

    def run(given: Arguments, rng: random.Random) -> Arguments:
        lengths = sorted(
            {n for x in torch.utils._pytree.tree_leaves(given) if isinstance(x, torch.Tensor) for n in x.shape}
        )
        chosen = rng.choice(lengths) if lengths else None

        def cut(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            for dim, n in enumerate(x.shape):
                x = x.narrow(dim, 0, size) if n == chosen and n >= size else x
            return x.detach().clone()

        return tree_map(cut, given)  # type: ignore[no-any-return]

    return run


def _negative_dims(given: Arguments, rng: random.Random) -> Arguments:
    """dim=0 as dim=-rank, and so on."""
    args, kwargs = given
    rank = args[0].dim() if isinstance(args[0], torch.Tensor) else 0
    turned = {
        k: v - rank if k in ("dim", "dim0", "dim1", "axis") and type(v) is int and 0 <= v < rank else v
        for k, v in kwargs.items()
    }
    return args, turned


PERTURBATIONS: dict[str, Callable[[Arguments, random.Random], Arguments]] = {
    "strides": _values(_strided),
    "specials": _values(_special),
    "extremes": _values(_extreme),
    "empty": _one_size(0),
    "single": _one_size(1),
    "negative dims": _negative_dims,
}


def _drawn(count: int) -> list[str]:
    left_out = (
        RANDOM | EMPTY | STATISTICS | set(TIED) | set(HOST_OPERANDS) | {"repeat_interleave"}
    )  # output_size must fit
    usable = [n for n, i in entries().items() if torch.float32 in i.dtypes and n not in left_out and "sparse" not in n]
    return [n for n in random.Random(20261130).sample(sorted(usable), count) if n not in UNLIKE]


def _host(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception:  # noqa: BLE001 - torch refuses these operands
        return None


def perturbed(name: str, samples: int) -> list[str]:
    """What differs for an entry."""
    info, rng, found = entries()[name], random.Random(zlib.crc32(name.encode())), []
    given = [arguments_of(s) for s in info.sample_inputs("cpu", torch.float32)]
    kinds = [k for k in PERTURBATIONS if k not in ("specials", "extremes") or not name.startswith(MIXING)]
    pairs = [(rng.choice(given), kind) for kind in kinds for _ in range(samples)] if given else []

    def run(arguments: Arguments) -> Any:
        with torch.no_grad():
            return info(*arguments[0], **arguments[1])

    for sample, kind in pairs:
        if is_factory(sample):
            continue
        changed = PERTURBATIONS[kind](sample, rng)
        want = _host(lambda: run(on_cpu(changed)))  # noqa: B023
        if want is None:
            continue
        try:
            got = run(on_device(changed))
            truth = (lambda: run(widened(changed))) if kind in ("strides", "single") else None  # noqa: B023
            compare(got, want, truth, strides=name not in UNLIKE_STRIDES and kind == "strides")
            torch.pjrt.synchronize()
        except Exception as error:  # noqa: BLE001 - all are reported
            shapes = tree_map(lambda x: tuple(x.shape) if isinstance(x, torch.Tensor) else x, changed)
            found.append(f"{name}, {kind}: {type(error).__name__}: {str(error)[:300]} {str(shapes)[:200]}")
    return found


@pytest.mark.parametrize("name", _drawn(QUICK))
def test_drawn_entries(name: str) -> None:
    assert not perturbed(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", _drawn(ALL)[QUICK:])
def test_more_drawn_entries(name: str) -> None:
    assert not perturbed(name, 3)
