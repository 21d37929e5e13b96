"""Operators that are decompositions of ours, or written with other operators, give CPU torch's results without a fallback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torch_pjrt.errors import UnsupportedOpError

DEVICE = "pjrt"
aten = torch.ops.aten


def _normal(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def _low_rank() -> torch.Tensor:
    return _normal(6, 2) @ _normal(2, 4, seed=1)


def _same(run: Callable[[Callable[[torch.Tensor], torch.Tensor]], Any], *, tolerance: float = 1e-4) -> None:
    want = run(lambda x: x.clone())
    torch.pjrt.reset_stats()
    got = run(lambda x: x.to(DEVICE))
    fallbacks = torch.pjrt.stats()["fallbacks"]
    ours, theirs = torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.device.type == DEVICE
        torch.testing.assert_close(a.cpu(), b, rtol=tolerance, atol=tolerance)
    assert not fallbacks


LSTSQ = {
    "tall": lambda: _normal(6, 4),
    "wide": lambda: _normal(4, 6),
    "batch": lambda: _normal(2, 5, 3),
    "of low rank": _low_rank,
}


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss", None])
@pytest.mark.parametrize("kind", LSTSQ)
def test_lstsq(kind: str, driver: str | None) -> None:
    a = LSTSQ[kind]()
    if driver == "gels" and kind == "of low rank":
        pytest.skip("gels assumes full rank")
    b = _normal(*a.shape[:-1], 2, seed=2)
    _same(lambda to: tuple(torch.linalg.lstsq(to(a), to(b), driver=driver)), tolerance=2e-3)


def test_lstsq_has_gradients() -> None:
    def run(to: Any) -> Any:
        a, b = to(_normal(6, 4)).requires_grad_(), to(_normal(6, 2, seed=1)).requires_grad_()
        return torch.autograd.grad(torch.linalg.lstsq(a, b).solution.square().sum(), [a, b])

    _same(run, tolerance=1e-3)


X = _normal(4, 6)
SCALE, ZERO = torch.tensor([0.1]), torch.tensor([2.3])
SCALES, ZEROS = _normal(6, seed=1).abs() + 0.05, _normal(6, seed=2) * 3


def _learnable(to: Any, per_channel: bool) -> Any:
    x = to(X).requires_grad_()
    scale, zero = (to(p).requires_grad_() for p in ((SCALES, ZEROS) if per_channel else (SCALE, ZERO)))
    if per_channel:
        out = torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, 1, -8, 7, 0.5)
    else:
        out = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7, 0.5)
    return out.detach(), *torch.autograd.grad(out.square().sum(), [x, scale, zero])


@pytest.mark.parametrize("per_channel", [False, True])
def test_learned_fake_quantization(per_channel: bool) -> None:
    _same(lambda to: _learnable(to, per_channel))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_observed_fake_quantization(per_row: bool, symmetric: bool) -> None:
    def run(to: Any) -> Any:
        state = [torch.full((4,) if per_row else (1,), v) for v in (float("inf"), -float("inf"), 1.0)]
        low, high, scale = (to(s) for s in state)
        zero = to(torch.zeros(scale.shape, dtype=torch.int32))
        on, outs = to(torch.ones(1, dtype=torch.int64)), []
        for seed in range(3):
            x = to(_normal(4, 6, seed=seed))
            outs.append(torch.fused_moving_avg_obs_fake_quant(
                x, on, on, low, high, scale, zero, 0.1, -128, 127, 0, per_row, symmetric))  # fmt: skip
        return [*outs, low, high, scale, zero]

    _same(run)


def test_qat_modules_train() -> None:
    from torch.ao.quantization import FakeQuantize, FusedMovingAvgObsFakeQuantize

    for cls in (FakeQuantize, FusedMovingAvgObsFakeQuantize):
        results = []
        for device in ("cpu", DEVICE):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(6, 5), cls(), torch.nn.Linear(5, 2)).to(device)
            loss = model(X.to(device)).square().sum()
            loss.backward()
            results.append([p.grad.cpu() for p in model.parameters() if p.grad is not None])
        for got, want in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [False, True])
def test_scaled_mm(rows: bool) -> None:
    a, b = _normal(16, 32).to(torch.float8_e4m3fn), _normal(48, 32, seed=1).to(torch.float8_e4m3fn)
    scales = (torch.rand(16, 1) + 0.5, torch.rand(1, 48) + 0.5) if rows else (torch.tensor(0.5), torch.tensor(2.0))
    for dtype in (torch.float32, torch.bfloat16):
        _same(lambda to, d=dtype: torch._scaled_mm(to(a), to(b).t(), *map(to, scales), out_dtype=d), tolerance=1e-2)


def test_int_mm_and_int8_weights() -> None:
    a = torch.randint(-128, 127, (20, 16), dtype=torch.int8)
    b = torch.randint(-128, 127, (16, 24), dtype=torch.int8)
    _same(lambda to: torch._int_mm(to(a), to(b)))
    x, scales = _normal(3, 16).bfloat16(), torch.rand(24).bfloat16()
    _same(lambda to: aten._weight_int8pack_mm(to(x), to(b.t().contiguous()), to(scales)), tolerance=5e-2)


def test_gradients_through_random_variates() -> None:
    shapes = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) * 5 + 0.1
    gammas = torch._standard_gamma(shapes)
    _same(lambda to: aten._standard_gamma_grad(to(shapes), to(gammas)), tolerance=2e-3)
    x = torch._sample_dirichlet(shapes).clamp(1e-4, 1 - 1e-4)
    total = shapes.sum(-1, True).expand_as(shapes).contiguous()
    _same(lambda to: torch._dirichlet_grad(to(x), to(shapes), to(total)), tolerance=5e-3)
    concentration = shapes.to(DEVICE).requires_grad_()
    torch.distributions.Dirichlet(concentration).rsample().square().sum().backward()
    assert bool(concentration.grad.isfinite().all())


VARIANTS: dict[str, Callable[[Any], Any]] = {
    "_add_relu": lambda to: torch._VF._add_relu(to(X), to(X), alpha=-2),
    "adaptive_avg_pool2d.out": lambda to: aten.adaptive_avg_pool2d.out(to(X[None]), [2, 2], out=to(torch.empty(0))),
    "_slow_conv2d": lambda to: aten._slow_conv2d_forward(
        to(_normal(1, 2, 5, 5)), to(_normal(3, 2, 3, 3)), [3, 3], None, [1, 1], [1, 1]
    ),
    "slow_conv_transpose2d": lambda to: aten.slow_conv_transpose2d(
        to(_normal(1, 2, 5, 5)), to(_normal(2, 3, 3, 3)), [3, 3], None, [2, 2], [1, 1], [1, 1], [1, 1]
    ),
    "batch_norm_update_stats": lambda to: torch.batch_norm_update_stats(
        to(X), to(torch.zeros(6)), to(torch.ones(6)), 0.1
    ),
    "dequantize": lambda to: to(X.half()).dequantize(),
    "geqrf": lambda to: torch.geqrf(to(X)),
    "geqrf.a": lambda to: torch.geqrf(to(X), out=(to(torch.empty(0)), to(torch.empty(0)))),
    "ldl": lambda to: torch.linalg.ldl_factor(to(X[:, :4] + X[:, :4].mT)),
    "_cummax_helper": lambda to: _cummax(to),
    "coo to csr": lambda to: torch._convert_indices_from_coo_to_csr(to(torch.tensor([0, 0, 2, 3])), 5),
    "csr to coo": lambda to: torch._convert_indices_from_csr_to_coo(
        to(torch.tensor([0, 2, 2, 3])), to(torch.tensor([1, 2, 0])), transpose=True
    ),
    "airy": lambda to: torch.special.airy_ai(to(torch.linspace(-20, 10, 301))),
}


def _cummax(to: Any) -> Any:
    values, indices = to(torch.empty(4, 6)), to(torch.empty(4, 6, dtype=torch.int64))
    torch._cummax_helper(to(X), values, indices, 1)
    return values, indices


@pytest.mark.parametrize("name", VARIANTS)
def test_other_spellings(name: str) -> None:
    _same(VARIANTS[name])


def test_assertions_and_identity() -> None:
    x = X.to(DEVICE)
    torch._assert_async((x == x).all())
    with pytest.raises(RuntimeError, match="not here"):
        torch._assert_async((x != x).any(), "not here")
    assert x.is_set_to(x.view(4, 6)) and not x.is_set_to(x[1:])
    assert x[:0].set_().numel() == 0


def test_quantized_tensors_are_refused_with_a_way_out() -> None:
    with pytest.raises(UnsupportedOpError, match="_int_mm"):
        torch.quantize_per_tensor(X.to(DEVICE), 0.1, 0, torch.qint8)
    with pytest.raises(NotImplementedError, match="dequantize|_int_mm"):
        torch.quantize_per_tensor(X, 0.1, 0, torch.qint8).to(DEVICE)
    with pytest.raises(UnsupportedOpError, match="_weight_int8pack_mm"):
        aten._weight_int4pack_mm_for_cpu(X.to(DEVICE), X.to(DEVICE), 32, X.to(DEVICE))


def test_scaled_mm_of_strided_operands() -> None:
    a, b = (torch.eye(16, 64)[:, ::2].to(torch.float8_e4m3fn) for _ in "ab")
    kind, one = F.ScalingType.TensorWise, torch.ones(1)
    _same(lambda to: F.scaled_mm(to(a)[:, ::2], to(b)[:, ::2].t(), to(one), kind, to(one), kind))
    _same(lambda to: torch._scaled_mm(to(a)[:, ::2], to(b)[:, ::2].t(), to(one), to(one)).float())


def test_scaled_mm_by_blocks_is_refused() -> None:
    kinds = F.ScalingType
    a = X.to(torch.float8_e4m3fn).to(DEVICE)
    one = torch.ones(1, device=DEVICE)
    with pytest.raises(UnsupportedOpError, match="RowWise"):
        F.scaled_mm(a, a.t(), one, kinds.BlockWise1x128, one, kinds.BlockWise1x128)


@pytest.mark.parametrize("on", [(1, 0), (0, 1)], ids=["observes", "rounds"])
def test_the_grid_of_a_moving_average_follows_the_rounding(on: tuple[int, int]) -> None:
    """torch computes scale and zero point where values are rounded, not where extremes are observed."""
    found = []
    for device in ("cpu", "pjrt"):
        state = [torch.tensor(n, device=device) for n in ([-0.5], [0.7], [1.0])]
        zero = torch.zeros(1, dtype=torch.int32, device=device)
        flags = [torch.tensor([n], device=device) for n in on]
        x = torch.linspace(-1, 1, 7, device=device)
        out = torch.fused_moving_avg_obs_fake_quant(x, *flags, *state, zero, 0.01, 0, 255, 0)
        found.append(torch.cat([out, *state, zero]).cpu())
    assert torch.allclose(*found, atol=1e-6)
