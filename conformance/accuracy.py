"""Judges a device result: structure, dtype, shape and strides must equal CPU torch's; values must be near the truth.

The truth is CPU torch in float64 (complex128). A result passes when it is no further from it than a small multiple of CPU
torch's own error in the dtype under test, with a floor of a few units in the last place. One run is one draw of that
error: where a sample amplifies rounding, CPU torch may have been lucky (householder_product's gradient: 6e-4 where operands
one unit in the last place away give it 1e-3 to 7e-3). So a result that is too far by the first draw is judged by the largest of
a few, each measured at such operands, against the truth at the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
MULTIPLE = 5  # of CPU torch's own error
DRAWS = 4  # of that error, beyond the first
FLOOR = 16  # units in the last place, for functions that CPU torch happens to round exactly
FINE = (torch.float64, torch.complex128)
UNKNOWN = 256  # times the floor in these, where CPU torch's own error in a gradient of zero cannot be measured


class Different(AssertionError):
    """The device's result is not torch's."""


def tensors_of(value: Any) -> list[Any]:
    """The leaves of a result, tensors and numbers."""
    return tree_leaves(value)


def _unit(dtype: torch.dtype) -> float:
    real = dtype.to_real() if dtype.is_complex else dtype
    return torch.finfo(real).eps


def compare(
    got: Any,
    want: Any,
    truth: Callable[[], Any] | None,
    *,
    values: bool = True,
    strides: bool = True,
    floor: float = 0.0,
    nearby: Callable[[int], tuple[Any, Any]] | None = None,
    exact_truth: bool = False,
) -> None:
    """Raise Different unless `got` (on the device) is `want` (CPU). `truth()` computes the result in float64, if asked.

    `floor` is an absolute error that is always allowed, in units in the last place of 1: sums of gradients may cancel.
    `nearby(i)` gives CPU torch's result and the truth at operands a little off, others for each i. `exact_truth` says that
    the truth is better than CPU torch in float64 too.
    """
    ours, theirs = tensors_of(got), tensors_of(want)
    if len(ours) != len(theirs):
        raise Different(f"{len(ours)} results, torch gives {len(theirs)}")
    exact: list[Any] | None = None
    for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(b, torch.Tensor):
            _compare_plain(a, b, position)
            continue
        _compare_form(a, b, position, strides)
        if not values:
            continue
        host = _plain(a)
        near = _plain(b)
        if _close(host, near, None, None):
            continue
        wide = None
        if truth is not None and (exact_truth or b.dtype in WIDE):
            if exact is None:
                try:
                    exact = tensors_of(truth())
                except Exception:  # noqa: BLE001 - CPU torch cannot compute it in float64
                    exact = []
            if position < len(exact) and isinstance(exact[position], torch.Tensor):
                wide = _plain(exact[position])
                if wide.shape != near.shape:
                    wide = None
        if _close(host, near, wide, MULTIPLE, floor):
            continue
        own = _largest_error(nearby, position) if nearby is not None and wide is not None else 0.0
        if not _close(host, near, wide, MULTIPLE, floor, own):
            raise Different(f"result {position}: {_difference(host, near, wide, floor, own)}")


def _largest_error(nearby: Callable[[int], tuple[Any, Any]], position: int) -> float:
    """CPU torch's own error in one of its results, as the largest of a few draws; a draw that it refuses says nothing."""
    largest = 0.0
    for draw in range(DRAWS):
        try:
            near, exact = (_plain(tensors_of(result)[position]) for result in nearby(draw))
        except Exception:  # noqa: BLE001 - as an argument on the edge of its domain may
            continue
        largest = max(largest, _own_error(_parts(near), _parts(exact)))
    return largest


def _own_error(near: torch.Tensor, exact: torch.Tensor) -> float:
    both = torch.isfinite(near) & torch.isfinite(exact)
    return float((near - exact).abs()[both].max()) if bool(both.any()) else 0.0


def _compare_plain(a: Any, b: Any, position: int) -> None:
    if type(a) is not type(b) and not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
        raise Different(f"result {position} is a {type(a).__name__}, torch gives a {type(b).__name__}")
    if isinstance(b, (float, complex)):
        same = torch.isclose(torch.tensor(a), torch.tensor(b), rtol=1e-5, atol=1e-6, equal_nan=True)
        if not bool(same):
            raise Different(f"result {position} is {a}, torch gives {b}")
    elif isinstance(b, (int, bool, str)) and a != b:
        raise Different(f"result {position} is {a}, torch gives {b}")


def _compare_form(a: Any, b: torch.Tensor, position: int, strides: bool) -> None:
    if not isinstance(a, torch.Tensor):
        raise Different(f"result {position} is a {type(a).__name__}, torch gives a tensor")
    if a.dtype != b.dtype or a.shape != b.shape or a.layout != b.layout:
        raise Different(
            f"result {position} is {a.dtype}{list(a.shape)} {a.layout}, torch gives {b.dtype}{list(b.shape)} {b.layout}"
        )
    if b.layout != torch.strided:
        return
    if a.device.type == "cpu":
        raise Different(f"result {position} is on the CPU")
    if strides and b.numel() > 0 and _is_dense(b) and _steps(a) != _steps(b):
        raise Different(f"result {position} has strides {a.stride()} for {list(b.shape)}, torch gives {b.stride()}")


def _is_dense(x: torch.Tensor) -> bool:
    """Whether a result has neither gaps nor overlaps; those of the device never have."""
    return torch.empty_like(x, device="meta").stride() == x.stride() or 1 in x.shape


def _steps(x: torch.Tensor) -> list[int]:
    """Strides of the dims in which they mean something."""
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1]


def _plain(x: torch.Tensor) -> torch.Tensor:
    x = x.detach()
    x = x.cpu() if x.device.type != "cpu" else x
    if x.layout != torch.strided:
        x = x.to_dense()
    if x.is_quantized:
        x = x.int_repr()
    return x.resolve_conj().resolve_neg()


def _parts(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.complex32:
        x = x.to(torch.complex64)
    x = torch.view_as_real(x) if x.is_complex() else x
    return x.double() if x.dtype.is_floating_point else x


def _close(
    a: torch.Tensor,
    b: torch.Tensor,
    truth: torch.Tensor | None,
    multiple: int | None,
    floor: float = 0.0,
    own: float = 0.0,
) -> bool:
    if not (b.dtype.is_floating_point or b.dtype.is_complex):
        return torch.equal(a, b)
    if b.numel() == 0:
        return True
    return not bool(_wrong(a, b, truth, multiple, floor, own).any())


def _wrong(
    a: torch.Tensor, b: torch.Tensor, truth: torch.Tensor | None, multiple: int | None, floor: float, own: float
) -> torch.Tensor:
    """True where `a` is too far from the truth (or, without one, from `b`)."""
    unit = _unit(b.dtype)
    limit = torch.finfo(b.dtype.to_real() if b.dtype.is_complex else b.dtype).max
    x, y = _parts(a), _parts(b)
    t = y if truth is None else _parts(truth)
    same = (x == y) | (x.isnan() & y.isnan())
    if not torch.isfinite(t).any():
        return ~same
    scale = t[torch.isfinite(t)].abs()
    typical = float(scale.square().mean().sqrt()) if scale.numel() else 0.0
    allowed = FLOOR * unit * (t.abs() + (typical if multiple else 0.0)) + floor * unit + torch.finfo(torch.float32).tiny
    if multiple:
        allowed = allowed + multiple * max(own, _own_error(y, t))
        if truth is None and b.dtype in FINE:
            allowed = allowed + 1e-9 * typical + UNKNOWN * floor * unit
    far = ~((x - t).abs() <= allowed)
    # where CPU torch overflows in this dtype but the truth is finite, either side of the limit is right
    edge = torch.isinf(y) & torch.isfinite(t) & (t.abs() > limit * 0.99) | torch.isinf(x) & (t.abs() > limit * 0.99)
    # where CPU torch itself is far from the truth (NaN for a number), being right is right
    return ~same & far & ~edge


def _difference(a: torch.Tensor, b: torch.Tensor, truth: torch.Tensor | None, floor: float, own: float) -> str:
    if not (b.dtype.is_floating_point or b.dtype.is_complex):
        wrong = a != b
        at = wrong.nonzero()[0].tolist()
        return f"{int(wrong.sum())} of {a.numel()} {b.dtype} differ, at {at}: {a[tuple(at)]} for {b[tuple(at)]}"
    wrong = _wrong(a, b, truth, MULTIPLE, floor, own)
    at = wrong.nonzero()[0].tolist()
    x, y = _parts(a), _parts(b)
    more = "" if truth is None else f", in truth {float(_parts(truth)[tuple(at)])!r}"
    return (
        f"{int(wrong.sum())} of {wrong.numel()} {b.dtype}{list(b.shape)} differ, "
        f"at {at}: {float(x[tuple(at)])!r} for {float(y[tuple(at)])!r}{more}"
    )
