"""Derivatives: torch.func inside compile, checkpoints, functions with a backward of their own, complex numbers."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import func
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from tests.compile.programs import gradients, normal, perceptron, program


@program()
def checkpoints(device: str, compile: Any) -> Any:
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(4)])
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(normal(*p.shape, seed=i))
    model.to(device)
    x = normal(3, 8, device=device).requires_grad_()
    compile(lambda x: checkpoint_sequential(model, 2, x, use_reentrant=False).sum())(x).backward()
    compile(lambda x: checkpoint(model[0], x, use_reentrant=False).sum())(x).backward()
    return x.grad, gradients(model)


@program()
def selective_checkpoint(device: str, compile: Any) -> Any:
    weight = normal(8, 8, device=device, seed=1).requires_grad_()

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_product = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ weight) @ weight

    x = normal(3, 8, device=device).requires_grad_()
    compile(lambda x: checkpoint(block, x, use_reentrant=False, context_fn=contexts).sin().sum())(x).backward()
    return x.grad, weight.grad


@program(quick=True)
def gradients_per_sample(device: str, compile: Any) -> Any:
    model = perceptron(device)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(func.functional_call(model, parameters, (x,)), y)

    each = compile(func.vmap(func.grad(loss), in_dims=(None, 0, 0)))
    return each(parameters, normal(5, 8, device=device), normal(5, 4, device=device, seed=1))


@program()
def jacobians_and_hessians(device: str, compile: Any) -> Any:
    weight, x = normal(4, 4, device=device, seed=2), normal(4, device=device)

    def curve(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(weight @ x)

    def energy(x: torch.Tensor) -> torch.Tensor:
        return curve(x).square().sum()

    return (
        compile(func.hessian(energy))(x),
        compile(func.jacrev(curve))(x),
        compile(func.jacfwd(curve))(x),
        compile(lambda x, t: func.jvp(energy, (x,), (t,)))(x, torch.ones_like(x)),
        compile(lambda x: func.vjp(energy, x)[1](torch.tensor(2.0, device=x.device)))(x),
    )


@program()
def ensemble(device: str, compile: Any) -> Any:
    models = [perceptron(device, seed) for seed in range(3)]
    parameters, _ = func.stack_module_state(models)  # type: ignore[arg-type]
    base = copy.deepcopy(models[0]).to("meta")

    def one(parameters: Any, x: torch.Tensor) -> torch.Tensor:
        return func.functional_call(base, parameters, (x,))

    return compile(func.vmap(one, in_dims=(0, None)))(parameters, normal(2, 8, device=device))


@program()
def function_with_its_own_backward(device: str, compile: Any) -> Any:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, least: float) -> Any:
            ctx.save_for_backward(x)
            ctx.least = least
            ctx.set_materialize_grads(False)
            return x.clamp(min=least), (x > least).sum()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:  # type: ignore[override]
            (x,) = ctx.saved_tensors
            return gradient * (x > ctx.least) * 2, None

    x = normal(4, 4, device=device).requires_grad_()
    y, count = compile(lambda x: Clip.apply(x * 2, 0.1))(x)
    y.square().sum().backward()
    return y, count, x.grad


@program()
def penalty_on_a_gradient(device: str, compile: Any) -> Any:
    weight = normal(8, 8, device=device, seed=2).requires_grad_()

    @compile
    def penalty(x: torch.Tensor) -> torch.Tensor:
        slope = func.grad(lambda x: torch.tanh(x @ weight).sum())(x)
        return (slope.norm(dim=1) - 1).square().mean()

    loss = penalty(normal(3, 8, device=device))
    loss.backward()
    return loss, weight.grad


@program()
def complex_numbers(device: str, compile: Any) -> Any:
    x = normal(4, 8, device=device).requires_grad_()
    weight = torch.view_as_complex(normal(5, 2, device=device, seed=1)).requires_grad_()

    @compile
    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        filtered = torch.fft.irfft(torch.fft.rfft(x) * weight.conj(), n=8).abs().sum()
        return filtered + torch.polar(x, x).real.sum() + (weight * weight.conj()).real.sum()

    run(x, weight).backward()
    return x.grad, weight.grad


@program()
def rotary_positions_by_complex_numbers(device: str, compile: Any) -> Any:
    turns = torch.polar(torch.ones(6, 4), normal(6, 4)).to(device)

    @compile
    def rotate(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)

    x = normal(2, 6, 8, device=device).requires_grad_()
    y = rotate(x)
    y.square().sum().backward()
    return y, x.grad


@program()
def compiled_in_compiled(device: str, compile: Any) -> Any:
    inner = compile(lambda x: x.sin() + 1)
    x = normal(3, device=device).requires_grad_()
    y = compile(lambda x: inner(x * 2).cos() + inner(x))(x)
    y.sum().backward()
    return y, x.grad


@program()
def causal_attention_of_growing_length(device: str, compile: Any) -> Any:
    attend = compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), dynamic=True)
    results = []
    for length in (3, 5, 8):
        q = normal(1, 2, length, 4, device=device, seed=length).requires_grad_()
        y = attend(q, q * 2, q + 1)
        y.sum().backward()
        results += [y, q.grad]
    return results
