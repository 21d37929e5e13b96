"""The models of benchmarks/models.py written by hand in JAX, with the training step that a JAX user would write.

A step is one jitted function (loss, gradient, AdamW; weights and state donated). For the GPT there is a second way, `layered`:
every layer is the same jitted function, forward and backward, so that XLA sees one layer at a time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Tree = Any
Step = Callable[[], float]
BETA1, BETA2, RATE, DECAY, EPSILON = 0.9, 0.999, 1e-3, 1e-2, 1e-8  # torch.optim.AdamW's defaults


def linear(p: Tree, x: Any) -> Any:
    """x @ w + b."""
    return x @ p["w"] + p["b"]


def layer_norm(p: Tree, x: Any) -> Any:
    """Over the last dim."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p["w"] + p["b"]


def block(p: Tree, x: Any) -> Any:
    """A pre-norm transformer block with causal attention of 8 heads."""
    batch, length, width = x.shape
    q, k, v = (
        t.reshape(batch, length, 8, width // 8) for t in jnp.split(linear(p["qkv"], layer_norm(p["norm1"], x)), 3, -1)
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width // 8)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(batch, length, width)
    x = x + linear(p["out"], mixed)
    return x + linear(p["down"], jax.nn.gelu(linear(p["up"], layer_norm(p["norm2"], x)), approximate=False))


def cross_entropy(scores: Any, labels: Any) -> Any:
    """The mean over samples."""
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()


def head(p: Tree, x: Any, labels: Any) -> Any:
    """The loss of the last layer's output."""
    return cross_entropy((layer_norm(p["norm"], x) @ p["head"]).reshape(-1, p["head"].shape[1]), labels)


def embed(p: Tree, tokens: Any) -> Any:
    """Token and position embeddings."""
    return p["embed"][tokens] + p["position"]


def gpt_loss(p: Tree, tokens: Any, labels: Any) -> Any:
    """The whole model."""
    x = embed(p, tokens)
    for layer in p["blocks"]:
        x = block(layer, x)
    return head(p, x, labels)


def adamw(p: Tree, g: Tree, m: Tree, v: Tree, count: Any) -> tuple[Tree, Tree, Tree]:
    """One update of every leaf."""
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, g)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, g)
    size = RATE / (1 - BETA1**count)
    root = jnp.sqrt(1 - BETA2**count)
    p = jax.tree.map(lambda p, m, v: p * (1 - RATE * DECAY) - size * m / (jnp.sqrt(v) / root + EPSILON), p, m, v)
    return p, m, v


def _training(loss: Callable[..., Any], p: Tree, *data: Any) -> Step:
    """The step as one program."""

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(p: Tree, m: Tree, v: Tree, count: Any, *data: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, *data)
        return value, *adamw(p, g, m, v, count)

    state = [p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)]
    count = 0

    def step() -> float:
        nonlocal count
        count += 1
        value, *state[:] = jax.block_until_ready(update(*state, np.float32(count), *data))
        return float(value)

    return step


def _layered(p: Tree, tokens: Any, labels: Any) -> Step:
    """The GPT's step layer by layer: a layer's forward gives what its backward needs, all layers share two programs."""
    forward = jax.jit(lambda layer, x: jax.vjp(block, layer, x))
    backward = jax.jit(lambda pull, g: pull(g))
    first = jax.jit(lambda p, tokens: jax.vjp(lambda p: embed(p, tokens), p))
    last = jax.jit(jax.value_and_grad(head, argnums=(0, 1)))
    update = jax.jit(adamw, donate_argnums=(0, 2, 3))
    ends = {k: p[k] for k in ("embed", "position")}, {k: p[k] for k in ("norm", "head")}
    groups = [ends[0], *p["blocks"], ends[1]]
    state = [(g, jax.tree.map(jnp.zeros_like, g), jax.tree.map(jnp.zeros_like, g)) for g in groups]
    count = 0

    def step() -> float:
        nonlocal count
        count += 1
        x, pull = first(state[0][0], tokens)
        pulls = [pull]
        for layer, _, _ in state[1:-1]:
            x, pull = forward(layer, x)
            pulls.append(pull)
        value, (g, gx) = last(state[-1][0], x, labels)
        gradients = [g]
        for pull in reversed(pulls[1:]):
            g, gx = backward(pull, gx)
            gradients.append(g)
        gradients.append(backward(pulls[0], gx)[0])
        for i, g in enumerate(reversed(gradients)):
            p, m, v = state[i]
            state[i] = update(p, g, m, v, np.float32(count))
        jax.block_until_ready(state)
        return float(value)

    return step


def _normal(key: np.random.Generator, *shape: int, scale: float | None = None) -> Any:
    return jnp.asarray(key.normal(size=shape) * (scale or 1 / math.sqrt(shape[0])), jnp.float32)


def _dense(draw: np.random.Generator, inputs: int, outputs: int) -> Tree:
    return {"w": _normal(draw, inputs, outputs), "b": jnp.zeros(outputs)}


def _norm(width: int) -> Tree:
    return {"w": jnp.ones(width), "b": jnp.zeros(width)}


def gpt(draw: np.random.Generator, layers: int, width: int = 256) -> Tree:
    """Weights of the GPT of benchmarks/models.py."""
    blocks = [
        {
            "norm1": _norm(width),
            "norm2": _norm(width),
            "qkv": _dense(draw, width, 3 * width),
            "out": _dense(draw, width, width),
            "up": _dense(draw, width, 4 * width),
            "down": _dense(draw, 4 * width, width),
        }
        for _ in range(layers)
    ]
    return {
        "embed": _normal(draw, 512, width, scale=1),
        "position": _normal(draw, 128, width, scale=0.02),
        "blocks": blocks,
        "norm": _norm(width),
        "head": _normal(draw, width, 512),
    }


def mlp_loss(p: Tree, x: Any, labels: Any) -> Any:
    """Three layers with relu."""
    for layer in p[:-1]:
        x = jax.nn.relu(linear(layer, x))
    return cross_entropy(linear(p[-1], x), labels)


def conv(w: Any, x: Any, stride: int, padding: int) -> Any:
    """NHWC, as JAX programs for any chip are written."""
    return lax.conv_general_dilated(
        x, w, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(p: Tree, x: Any) -> Any:
    """With the batch's statistics (the running ones are updated by the caller in real programs; left out here)."""
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x).mean((0, 1, 2)) - jnp.square(mean)
    return (x - mean) * (lax.rsqrt(variance + 1e-5) * p["w"]) + p["b"]


def residual(p: Tree, x: Any, stride: int) -> Any:
    """ResNet's basic block."""
    y = jax.nn.relu(batch_norm(p["norm1"], conv(p["conv1"], x, stride, 1)))
    y = batch_norm(p["norm2"], conv(p["conv2"], y, 1, 1))
    return jax.nn.relu(y + (batch_norm(p["norm3"], conv(p["skip"], x, stride, 0)) if "skip" in p else x))


def resnet_loss(p: Tree, x: Any, labels: Any) -> Any:
    """ResNet-18."""
    x = jax.nn.relu(batch_norm(p["norm"], conv(p["stem"], x, 2, 3)))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for i, layer in enumerate(p["blocks"]):
        x = residual(layer, x, 2 if i in (2, 4, 6) else 1)
    return cross_entropy(linear(p["head"], x.mean((1, 2))), labels)


def _kernel(draw: np.random.Generator, size: int, inputs: int, outputs: int) -> Any:
    return _normal(draw, size, size, inputs, outputs, scale=1 / math.sqrt(size * size * inputs))


def resnet18(draw: np.random.Generator, width: int = 64) -> Tree:
    """Weights of the ResNet-18 of benchmarks/models.py."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = []
    for i in range(4):
        for a in (widths[i], widths[i + 1]):
            b = widths[i + 1]
            layer = {
                "conv1": _kernel(draw, 3, a, b),
                "conv2": _kernel(draw, 3, b, b),
                "norm1": _norm(b),
                "norm2": _norm(b),
            }
            if a != b:
                layer |= {"skip": _kernel(draw, 1, a, b), "norm3": _norm(b)}
            blocks.append(layer)
    return {
        "stem": _kernel(draw, 7, 3, width),
        "norm": _norm(width),
        "blocks": blocks,
        "head": _dense(draw, 8 * width, 10),
    }


def training_step(name: str, layers: int = 4, *, layered: bool = False) -> Step:
    """A whole step of "mlp", "gpt" or "resnet18" that reads the loss and returns when all is done."""
    draw = np.random.default_rng(0)
    if name == "gpt":
        tokens = jnp.asarray(draw.integers(0, 512, (4, 128)), jnp.int32)
        p = gpt(draw, layers)
        return _layered(p, tokens, tokens.ravel()) if layered else _training(gpt_loss, p, tokens, tokens.ravel())
    if name == "resnet18":
        x, y = _normal(draw, 4, 96, 96, 3, scale=1), jnp.asarray(draw.integers(0, 10, 4), jnp.int32)
        return _training(resnet_loss, resnet18(draw), x, y)
    sizes = (256, 512, 512, 10)
    x, y = _normal(draw, 128, 256, scale=1), jnp.asarray(draw.integers(0, 10, 128), jnp.int32)
    return _training(mlp_loss, [_dense(draw, a, b) for a, b in zip(sizes, sizes[1:], strict=False)], x, y)
