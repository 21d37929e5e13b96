"""Higher-order operators, transforms and checkpoints inside compiled functions, forward and backward, against CPU torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def agree(function: Callable[..., Any], *args: torch.Tensor, reference: Callable[..., Any] | None = None) -> None:
    """Results and, where inputs require gradients, gradients of the compiled function on the device against CPU torch."""

    def run(f: Callable[..., Any], where: str) -> Any:
        given = [a.detach().clone().to(where).requires_grad_(a.requires_grad) for a in args]
        out = f(*given)
        leaves = [t for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad]
        for k, t in enumerate(leaves):
            (t * t.detach().cos()).sum().backward(retain_graph=k + 1 < len(leaves))
        grads = [a.grad for a in given if a.requires_grad]
        return torch.utils._pytree.tree_map(lambda t: t.detach().cpu(), (out, grads))

    got = run(torch.compile(function, backend="pjrt", fullgraph=True), "pjrt")
    torch.testing.assert_close(got, run(reference or function, "cpu"), rtol=1e-4, atol=1e-5)
    assert torch.pjrt.stats()["fallbacks"] == {}


def leaf(*size: int) -> torch.Tensor:
    return torch.randn(*size, requires_grad=True)


def loop(x: torch.Tensor) -> torch.Tensor:
    start = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 1.5), (start, x))[1]  # type: ignore[no-any-return]


OPERATORS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "cond": (
        lambda x, w: torch.cond(x.sum() > 0, lambda x: (x @ w).sin(), lambda x: x.cos() @ w, (x,)),
        (leaf(3, 3), leaf(3, 3)),
    ),
    "while_loop": (loop, (leaf(3),)),
    "scan": (lambda i, x: scan(lambda c, y: (c + y * c, c * y), i, x, dim=0), (leaf(3), leaf(4, 3))),
    "scan backwards": (
        lambda i, x: scan(lambda c, y: (c + y, c * y), i, x, dim=1, reverse=True),
        (torch.randn(3), torch.randn(3, 4)),
    ),
    "associative_scan": (
        lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"),
        (leaf(5, 3),),
    ),
    "map": (lambda x, y: map_rows(lambda a, b: a.sin() * b, x, y), (leaf(4, 3), leaf(3))),
    "vmap": (lambda x, y: torch.vmap(lambda a, b: (a * b).sum() + a)(x, y), (leaf(4, 3), leaf(4, 3))),
    "grad": (lambda x: torch.func.grad(lambda a: (a.sin() ** 2).sum())(x), (torch.randn(5),)),
    "jvp": (lambda x, t: torch.func.jvp(lambda a: a.sin() * a, (x,), (t,)), (torch.randn(4), torch.randn(4))),
    "hessian": (lambda x: torch.func.hessian(lambda a: (a**3).sum())(x), (torch.randn(3),)),
    "jacobians": (
        lambda x: (torch.func.jacrev(torch.sin)(x), torch.func.jacfwd(torch.cos)(x)),
        (torch.randn(3),),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(OPERATORS))
def test_operator(name: str) -> None:
    function, args = OPERATORS[name]
    agree(function, *args)


def test_map() -> None:
    agree(*OPERATORS["map"][:1], *OPERATORS["map"][1])


@pytest.mark.slow
def test_flex_attention_with_mask_and_bias() -> None:
    places = ("cpu", "pjrt")
    masks = {d: create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 128, 128, device=d) for d in places}
    bias = {d: torch.linspace(-1, 1, 255).to(d) for d in places}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        where = q.device.type
        return flex_attention(
            q,
            k,
            v,
            score_mod=lambda s, b, h, m, n: s + bias[where][m - n + 127] * (h + 1),
            block_mask=masks[where],
            enable_gqa=True,
        )

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        at = torch.arange(128)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        more = bias["cpu"][at[:, None] - at + 127] * torch.arange(1, 5).view(4, 1, 1)
        scores = q @ k.mT / 4 + more
        return scores.masked_fill(at[:, None] < at, float("-inf")).softmax(-1) @ v

    agree(attend, leaf(1, 4, 128, 16), leaf(1, 2, 128, 16), leaf(1, 2, 128, 16), reference=plain)


@pytest.mark.slow
def test_functional_call_and_per_sample_gradients() -> None:
    layer = torch.nn.Linear(3, 2)

    def gradients(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> Any:
        def loss(parameters: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(layer, parameters, (row,)).square().sum()  # type: ignore[no-any-return]

        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))({"weight": weight, "bias": bias}, x)

    agree(gradients, torch.randn(2, 3), torch.randn(2), torch.randn(5, 3))


def test_checkpoint() -> None:
    agree(lambda x, w: checkpoint(lambda a: (a @ w).relu() @ w, x, use_reentrant=False).sum(), leaf(4, 4), leaf(4, 4))


@pytest.mark.slow
def test_selective_checkpoint() -> None:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        saved = op == torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    agree(
        lambda x, w: checkpoint(lambda a: (a @ w).sigmoid() @ w, x, use_reentrant=False, context_fn=contexts).sum(),
        leaf(4, 4),
        leaf(4, 4),
    )


def test_checkpoint_draws_the_same_numbers_in_backward() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        inner = checkpoint(lambda a: F.dropout(F.dropout(a, 0.5).sin(), 0.3), x, use_reentrant=False)
        return F.dropout(inner, 0.1)

    def run(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        out = []
        for _ in range(2):
            x = torch.ones(64, device="pjrt", requires_grad=True)
            y = function(x)
            y.sum().backward()
            assert x.grad is not None
            out += [y.detach().cpu(), x.grad.cpu()]
        return [*out, torch.rand(4, device="pjrt").cpu()]

    compiled = torch.compile(noisy, backend="pjrt", fullgraph=True)
    for got, expected in zip(run(compiled), run(noisy), strict=True):
        torch.testing.assert_close(got, expected)
    assert torch.pjrt.stats()["captures"] == 2


@pytest.mark.slow
def test_custom_operators() -> None:
    @torch.library.custom_op("torch_pjrt_tests::muladd", mutates_args=())
    def muladd(x: torch.Tensor, y: torch.Tensor, k: float) -> torch.Tensor:
        return x * y + k

    @torch.library.custom_op("torch_pjrt_tests::increase", mutates_args=("x",))
    def increase(x: torch.Tensor, k: float) -> None:
        x.add_(k)

    muladd.register_fake(lambda x, y, k: torch.empty_like(x))
    muladd.register_autograd(
        lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0], None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2]),
    )

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = muladd(x.sin(), y, 1.5)
        w = z.detach().clone()
        increase(w, 2.0)
        return z * w

    agree(function, leaf(3), leaf(3))


@pytest.mark.slow
def test_gradients_of_gradients() -> None:
    def penalty(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        loss = ((x @ w).sin() ** 2).sum()
        (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
        return loss + gradient.square().sum()

    def run(function: Callable[..., torch.Tensor], where: str) -> torch.Tensor:
        w = torch.eye(3, device=where, requires_grad=True)
        function(torch.ones(2, 3, device=where), w).backward()
        assert w.grad is not None
        return w.grad.cpu()

    expected = run(penalty, "cpu")
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        torch.testing.assert_close(run(torch.compile(penalty), "pjrt"), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_compiled_autograd() -> None:
    layer = torch.nn.Linear(3, 3).to("pjrt")
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="pjrt")):
        torch.compile(layer)(torch.ones(2, 3, device="pjrt")).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.cpu().tolist() == [[2.0] * 3] * 3


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_pointwise_scans(device: str) -> None:
    """docs/torch_compile.md says which releases of PyTorch take them, and what to give to the others."""
    product = lambda x: associative_scan(lambda a, b: a * b, x, 0)  # its mode is "pointwise"
    x = torch.arange(1.0, 13).reshape(4, 3)
    if torch.__version__ >= "2.14" and device == "cpu":
        pytest.skip("refused by Inductor there, not by PyTorch")
    for function in (product, torch.compile(product, fullgraph=True)):
        if torch.__version__ >= "2.14":
            torch.testing.assert_close(function(x.to(device)).cpu(), x.cumprod(0))
            continue
        with pytest.raises((ValueError, torch._dynamo.exc.Unsupported), match="need to be on CUDA or XPU"):
            function(x.to(device))
