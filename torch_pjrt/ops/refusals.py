"""What torch's CPU kernels refuse and its meta kernels let through: checks on shapes, dtypes and static arguments.

Run once per template (ops/metadata.py), so they cost nothing later. Checks on numbers, which are not part of a template,
are in AT_CALL and run at every call of the few overloads that have one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt.errors import InvalidOperandError

CHECKS: dict[str, Callable[..., None]] = {}
AT_CALL: dict[str, Callable[..., None]] = {}


def refuses(*names: str, table: dict[str, Callable[..., None]] = CHECKS) -> Callable[[Any], Any]:
    """Decorator: the function raises for calls of these overloads ("x.default") that torch would refuse."""

    def register(fn: Any) -> Any:
        for name in names:
            table[f"aten::{name}"] = fn
        return fn

    return register


def _refuse(unless: bool, what: str) -> None:
    if not unless:
        raise InvalidOperandError(what)


@refuses("complex.default", "polar.default")
def same_floats(a: torch.Tensor, b: torch.Tensor) -> None:
    _refuse(
        a.is_floating_point() and b.is_floating_point(),
        f"Expected both inputs to be floats but got {a.dtype} and {b.dtype}",
    )
    _refuse(
        a.dtype == b.dtype,
        f"Expected object of scalar type {a.dtype} but got scalar type {b.dtype} for second argument",
    )


@refuses("masked_scatter.default", "masked_select.default")
def bool_mask(self: torch.Tensor, mask: torch.Tensor, *rest: Any) -> None:
    _refuse(mask.dtype == torch.bool, f"expected a boolean mask, but got {mask.dtype}")


@refuses("as_strided_scatter.default")
def inside_storage(
    self: torch.Tensor, src: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> None:
    last = (storage_offset or 0) + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    _refuse(0 in tuple(size) or last < self.numel(), f"size {list(size)} and strides {list(stride)} are out of bounds")


def same_part(part: torch.Tensor, src: torch.Tensor) -> None:
    """Refuse a src of another size than the part that it replaces."""
    same = part.shape == src.shape
    _refuse(
        same,
        f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
        f"{list(part.shape)}",
    )


@refuses("min.dim", "max.dim", "median.dim", "nanmedian.dim", "mode.default")
def of_something(self: torch.Tensor, dim: int = -1, keepdim: bool = False) -> None:
    if self.dim() and self.shape[dim] == 0:
        raise IndexError(f"Expected reduction dim {dim} to have non-zero size.")


@refuses("kthvalue.default")
def kthvalue(self: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> None:
    of_something(self, dim)


@refuses("diagonal_scatter.default")
def diagonal_scatter(self: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> None:
    same_part(self.diagonal(offset, dim1, dim2), src)


@refuses("select_scatter.default")
def select_scatter(self: torch.Tensor, src: torch.Tensor, dim: int, index: int) -> None:
    same_part(self.select(dim, index), src)


@refuses("convolution.default", "convolution_overrideable.default")
def convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> None:
    _refuse(all(p >= 0 for p in padding), f"negative padding is not supported: {list(padding)}")
    _refuse(all(d > 0 for d in dilation), f"dilation should be greater than zero: {list(dilation)}")
    _refuse(all(s > 0 for s in stride), f"non-positive stride is not supported: {list(stride)}")


@refuses("cat.default")
def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> None:
    scalar = next((i for i, t in enumerate(tensors) if t.dim() == 0), None)
    _refuse(scalar is None, f"zero-dimensional tensor (at position {scalar}) cannot be concatenated")


@refuses("amin.default", "amax.default")
def extremum(self: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> None:
    if self.numel():
        return
    _refuse(bool(dim), "amin/amax: expected reduction dim to be specified for an operand without elements")
    for d in dim:
        if self.dim() and self.shape[d] == 0:
            raise IndexError(f"amin/amax: expected reduction dim {d} to have non-zero size")


@refuses("aminmax.default")
def extrema(self: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> None:
    _refuse(dim is not None or self.numel() > 0, "aminmax: an empty dimension has neither minimum nor maximum")
    extremum(self, () if dim is None else (dim,))


@refuses("multinomial.default")
def multinomial(self: torch.Tensor, num_samples: int, replacement: bool = False, **kwargs: Any) -> None:
    _refuse(self.is_floating_point(), f"multinomial only supports floating-point dtypes for input, got: {self.dtype}")
    _refuse(0 < self.dim() <= 2, "prob_dist must be 1 or 2 dim")
    _refuse(num_samples > 0, "cannot sample n_sample <= 0 samples")
    _refuse(replacement or num_samples <= self.shape[-1], "cannot sample more than there are without replacement")


@refuses("multilabel_margin_loss_forward.default")
def multilabel_margin_loss(self: torch.Tensor, target: torch.Tensor, *rest: Any) -> None:
    ours, theirs = list(self.shape), list(target.shape)
    _refuse(
        len(ours) <= 2 and (not ours or ours[-1] > 0),
        f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {ours}",
    )
    same = ours == theirs or max(len(ours), len(theirs)) <= 1 and self.numel() == target.numel()
    _refuse(same, f"inconsistent target size: {theirs} for input of size: {ours}")


def _bins(bins: int, low: float, high: float) -> None:
    _refuse(bins > 0, f"bins of a histogram must be > 0, but got {bins}")
    _refuse(math.isfinite(low) and math.isfinite(high), f"the range [{low}, {high}] of a histogram is not finite")
    _refuse(low <= high, f"min of a histogram should not exceed max, but got min {low} max {high}")


@refuses("histogram.bin_ct", "_histogramdd_from_bin_cts.default", "_histogramdd_bin_edges.default")
def histogram(self: torch.Tensor, bins: Any, *, range: Sequence[float] | None = None, **kwargs: Any) -> None:
    counts = [bins] if isinstance(bins, int) else bins
    right = isinstance(bins, int) or len(bins) == self.shape[-1]
    _refuse(right, "histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    limits = [0.0, 1.0] * len(counts) if range is None else range
    _refuse(len(limits) == 2 * len(counts), f"range should have {2 * len(counts)} elements, but got {len(limits)}")
    for i, count in enumerate(counts):
        _bins(count, limits[2 * i], limits[2 * i + 1])


@refuses("histc.default", "histc.out", table=AT_CALL)
def histc(self: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0, **kwargs: Any) -> None:
    low, high = (0.0, 1.0) if min == max else (float(min), float(max))  # equal ones stand for the data's own range
    _bins(bins, low, high)


@refuses("histogram.bins_tensor", "_histogramdd_from_bin_tensors.default")
def histogram_edges(self: torch.Tensor, bins: Any, **kwargs: Any) -> None:
    for edges in [bins] if isinstance(bins, torch.Tensor) else bins:
        _refuse(edges.dim() == 1, f"the edges of a histogram should have one dimension, but have {edges.dim()}")
        _refuse(edges.numel() > 1, f"a histogram needs at least 2 edges, but got {edges.numel()}")


@refuses("_embedding_bag.default", "_embedding_bag_forward_only.default")
def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    *rest: Any,
    **kwargs: Any,
) -> None:
    given = weight if per_sample_weights is None else per_sample_weights
    _refuse(given.dtype == weight.dtype, f"per_sample_weights are {given.dtype}, but the table is {weight.dtype}")


@refuses("bucketize.Tensor", "bucketize.Scalar")
def bucketize(self: Any, boundaries: torch.Tensor, **kwargs: Any) -> None:
    _refuse(boundaries.dim() == 1, f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")


@refuses("sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")
def no_bools(self: torch.Tensor, other: Any, alpha: Any = 1) -> None:
    bools = self.dtype == torch.bool or (
        other.dtype == torch.bool if isinstance(other, torch.Tensor) else other is True
    )
    _refuse(
        not bools,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the "
        "`~` or `logical_not()` operator instead.",
    )


@refuses("nll_loss_forward.default", "nll_loss2d_forward.default")
def classes(self: torch.Tensor, target: torch.Tensor, *rest: Any) -> None:
    taken = (torch.int64, torch.uint8) if self.dim() <= 2 else (torch.int64,)
    _refuse(target.dtype in taken, f"expected target dtype to be Long or Byte, but got {target.dtype}")


@refuses("abs_.default", table=AT_CALL)
def abs_(self: torch.Tensor) -> None:
    _refuse(not self.is_complex(), "In-place abs is not supported for complex tensors.")


@refuses("uniform_.default", table=AT_CALL)
def uniform_(self: torch.Tensor, from_: float = 0.0, to: float = 1.0, **kwargs: Any) -> None:
    low, high = kwargs.get("from", from_), to
    _refuse(low <= high, f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")


def _numbers(name: str, parameter: str, default: float, says: str, accepts: Callable[[float], bool]) -> None:
    """Refuse draws from a distribution whose parameter, by its place or name, is out of range."""
    position = 2 if name in ("cauchy_.default", "log_normal_.default", "normal_.default") else 1

    def check(*args: Any, **kwargs: Any) -> None:
        value = kwargs.get(parameter, args[position] if len(args) > position else default)
        _refuse(accepts(value), f"{name.partition('.')[0]} expects {says}, but found {parameter}={value}")

    AT_CALL[f"aten::{name}"] = check


_numbers("bernoulli_.float", "p", 0.5, "p to be in [0, 1]", lambda p: 0 <= p <= 1)
_numbers("cauchy_.default", "sigma", 1.0, "sigma > 0.0", lambda sigma: sigma > 0)
_numbers("exponential_.default", "lambd", 1.0, "lambda > 0.0", lambda rate: rate > 0)
_numbers("geometric_.default", "p", 0.5, "p to be in (0, 1)", lambda p: 0 < p < 1)
_numbers("log_normal_.default", "std", 2.0, "std > 0.0", lambda std: std > 0)
_numbers("normal_.default", "std", 1.0, "std >= 0.0", lambda std: std >= 0)
