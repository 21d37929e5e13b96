"""Decompositions of fake quantization with learned or observed parameters, as quantization-aware training uses them.

Real quantized tensors are refused (unsupported.py); fake quantization with given parameters is rows.
"""

from __future__ import annotations

import torch

from torch_pjrt.ops.decompose import decomposition

aten = torch.ops.aten
Tensor = torch.Tensor
SMALLEST_SCALE = 6.1e-5  # below it torch widens the range instead


def _held(zero_point: Tensor, low: int, high: int) -> Tensor:
    """A learned zero point, rounded and inside the range."""
    return zero_point.round().clamp(low, high)


def _along(x: Tensor, like: Tensor, axis: int | None) -> Tensor:
    """A parameter in a shape that broadcasts against like: one number, or one per position of a dim."""
    return x.reshape([-1 if d == axis else 1 for d in range(like.dim())])


@decomposition("aten::_fake_quantize_learnable_per_tensor_affine.default")
def learnable_per_tensor(
    self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """Rounded to the grid of one learned scale and zero point."""
    on = torch.ones(1, dtype=torch.int64, device=self.device)
    zero = _held(zero_point, quant_min, quant_max).to(torch.int32)
    return aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default(
        self, scale, zero, on, quant_min, quant_max
    )[0]


@decomposition("aten::_fake_quantize_learnable_per_channel_affine.default")
def learnable_per_channel(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """Rounded to the grid of each channel's learned scale and zero point."""
    zero = _held(zero_point, quant_min, quant_max).to(torch.int32)
    return aten.fake_quantize_per_channel_affine_cachemask.default(self, scale, zero, axis, quant_min, quant_max)[0]


def _gradients(
    grad: Tensor, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, scale and zero point before they are summed: Esser et al., 2019, and its zero point's twin."""
    level = (x * (1 / scale)).round() + zero
    inside = (level >= low) & (level <= high)
    steps = level.clamp(low, high) - zero
    grad_scale = torch.where(inside, (steps * scale - x) / scale, steps) * grad * factor
    grad_zero = torch.where(inside, 0.0, -scale) * grad * factor
    return torch.where(inside, grad, 0.0), grad_scale, grad_zero


@decomposition("aten::_fake_quantize_learnable_per_tensor_affine_backward.default")
def learnable_per_tensor_backward(
    grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, factor: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, scale and zero point (which torch rounds in another way than in the forward here)."""
    one, zero = scale.reshape(()), (zero_point + 0.5).clamp(quant_min, quant_max).trunc().reshape(())
    grad_x, grad_scale, grad_zero = _gradients(grad, self, one, zero, quant_min, quant_max, factor)
    return grad_x, grad_scale.sum().reshape(scale.shape), grad_zero.sum().reshape(zero_point.shape)


@decomposition("aten::_fake_quantize_learnable_per_channel_affine_backward.default")
def learnable_per_channel_backward(
    grad: Tensor,
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, scales and zero points."""
    axis = axis % self.dim()
    each, zero = (_along(p, self, axis) for p in (scale, _held(zero_point, quant_min, quant_max)))
    grad_x, grad_scale, grad_zero = _gradients(grad, self, each, zero, quant_min, quant_max, grad_factor)
    others = [d for d in range(self.dim()) if d != axis]
    if others:
        grad_scale, grad_zero = grad_scale.sum(others), grad_zero.sum(others)
    return grad_x, grad_scale, grad_zero


def _parameters(low: Tensor, high: Tensor, quant_min: int, quant_max: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Scale and zero point of a grid that covers [low, high] and holds zero exactly."""
    low, high = low.double().clamp(max=0), high.double().clamp(min=0)
    if symmetric:
        least, most = -((quant_max - quant_min) // 2 + 1), (quant_max - quant_min) // 2
        step = torch.maximum((low / least).abs(), (high / most).abs()) if most else (low / least).abs()
        low, high = step * least, step * most
    scale = (high - low) / (quant_max - quant_min)
    scale = torch.where((scale == 0) | torch.isinf(1 / scale.float()), 0.1, scale)
    small = scale < SMALLEST_SCALE
    high_at = torch.where(low == 0, SMALLEST_SCALE * (quant_max - quant_min), high * (SMALLEST_SCALE / scale))
    low_at = torch.where(high == 0, -SMALLEST_SCALE * (quant_max - quant_min), low * (SMALLEST_SCALE / scale))
    low, high = torch.where(small & (high != 0), low_at, low), torch.where(small, high_at, high)
    scale = torch.where(small, SMALLEST_SCALE, scale)
    from_low, from_high = quant_min - low / scale, quant_max - high / scale
    error_low, error_high = abs(quant_min) + (low / scale).abs(), abs(quant_max) + (high / scale).abs()
    zero = torch.where(error_low < error_high, from_low, from_high)
    if symmetric:
        zero = torch.where((low < 0) & (high > 0), (quant_min + quant_max) / 2, zero)
    return scale, zero.clamp(quant_min, quant_max).round()


def _observed(running: Tensor, seen: Tensor, rate: float, on: Tensor) -> None:
    """Move a running extreme towards what was seen, if the observer is on."""
    moved = torch.where(torch.isinf(running), seen, running + rate * (seen - running))
    running.copy_(torch.where(on, moved, running))


@decomposition("aten::_fused_moving_avg_obs_fq_helper.default")
def fused_moving_average(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, Tensor]:
    """Observe extremes, choose the grid, round to it: the observer writes the extremes, the rounding the grid."""
    rows = self.movedim(ch_axis, 0).flatten(1) if per_row_fake_quant else self.reshape(1, -1)
    count = rows.shape[0]
    for state, wanted in ((running_min, count), (running_max, count), (scale, count), (zero_point, count)):
        if per_row_fake_quant and state.numel() != wanted:
            state.resize_(wanted).fill_(float("inf") if state is running_min else -float("inf")
                                        if state is running_max else 0)  # fmt: skip
    low, high = (x.to(running_min.dtype) for x in (rows.amin(1), rows.amax(1)))
    on = observer_on.reshape(()) != 0
    _observed(running_min, low.reshape(running_min.shape), averaging_const, on)
    _observed(running_max, high.reshape(running_max.shape), averaging_const, on)
    new_scale, new_zero = _parameters(running_min, running_max, quant_min, quant_max, symmetric_quant)
    use = fake_quant_on.reshape(()) != 0
    scale.copy_(torch.where(use, new_scale.reshape(scale.shape).to(scale.dtype), scale))
    zero_point.copy_(torch.where(use, new_zero.reshape(zero_point.shape).to(zero_point.dtype), zero_point))
    if not per_row_fake_quant:
        return aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default(  # type: ignore[no-any-return]
            self, scale, zero_point.to(torch.int32), fake_quant_on, quant_min, quant_max
        )
    out, mask = aten.fake_quantize_per_channel_affine_cachemask.default(
        self, scale, zero_point.to(torch.int32), ch_axis, quant_min, quant_max
    )
    return torch.where(use, out, self), mask | ~use
