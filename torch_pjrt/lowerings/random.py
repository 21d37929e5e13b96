"""Random rows that transform one draw per element: uniform, normal, integers, Bernoulli, permutations and their kin.

Numbers come from random_bits.py. Distributions that need rejection loops are in random_rejection.py, multinomial in
random_choice.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings import random_bits
from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, iota, is_float, like, opmath
from torch_pjrt.lowerings.random_bits import WORDS
from torch_pjrt.ops.registry import row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]


@row("uniform", random=WORDS)
def uniform(self: Array, rng: Array, out: Out, **bounds: Array) -> Array:
    """from + u * (to - from), u uniform on [0, 1)."""
    u = random_bits.unit(rng, *out[0])
    low, high = as_dtype(bounds["from"], u.dtype), as_dtype(bounds["to"], u.dtype)
    return as_dtype(random_bits.scaled(u, low, lax.sub(high, low)), out[0][1])


@row("rand", "rand.generator", random=WORDS)
def rand(size: Any, dtype: Any, rng: Array, out: Out) -> Array:
    """Uniform on [0, 1): the numbers of `uniform`."""
    return as_dtype(random_bits.unit(rng, *out[0]), out[0][1])


@row("normal_functional", random=WORDS)
def normal_functional(self: Array, mean: Array, std: Array, rng: Array, out: Out) -> Array:
    """mean + std * z."""
    return as_dtype(random_bits.scaled(random_bits.gaussian(rng, *out[0]), mean, std), out[0][1])


@row("randn", "randn.generator", random=WORDS)
def randn(size: Any, dtype: Any, rng: Array, out: Out) -> Array:
    """Standard normal: the numbers of `normal_functional`."""
    return as_dtype(random_bits.gaussian(rng, *out[0]), out[0][1])


@row("normal.float_float", random=WORDS)
def normal_sized(mean: Array, std: Array, size: Any, dtype: Any, rng: Array, out: Out) -> Array:
    """mean + std * z of a given size."""
    return as_dtype(random_bits.scaled(random_bits.gaussian(rng, *out[0]), mean, std), out[0][1])


@row("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", random=WORDS)
def normal_of_tensors(mean: Array, std: Array, rng: Array, out: Out) -> Array:
    """mean + std * z, elementwise."""
    shape, dtype = out[0]
    z = random_bits.gaussian(rng, shape, dtype)
    mean, std = (broadcast_to(as_dtype(a, z.dtype), shape) for a in (mean, std))
    return as_dtype(lax.add(lax.mul(std, z), mean), dtype)


def integers(rng: Array, low: Array, span: Array, out: Out) -> Array:
    """low + bits mod span, span a uint64 (0 means all 2**64); 64 bits keep the bias below 2**-32."""
    shape, dtype = out[0]
    bits = random_bits.draw64(rng, int(np.prod(shape, dtype=np.int64)))
    span = like(as_dtype(span, np.uint64), bits)
    zero = constant(0, bits)
    whole = lax.eq(span, zero)
    value = lax.select(whole, bits, lax.rem(bits, lax.select(whole, constant(1, bits), span)))
    value = lax.bitcast_convert_type(value, np.int64)
    value = lax.add(value, like(low, value))
    value = lax.ne(value, constant(0, value)) if dtype == np.bool_ else as_dtype(value, dtype)
    return lax.reshape(value, shape)


def _span(low: Array, high: Array) -> Array:
    return lax.bitcast_convert_type(lax.sub(as_dtype(high, np.int64), as_dtype(low, np.int64)), np.uint64)


@row("randint", "randint.generator", operands=("high",), random=2)
def randint(high: Array, size: Any, dtype: Any, rng: Array, out: Out) -> Array:
    """Integers of [0, high)."""
    return integers(rng, np.int64(0), _span(np.int64(0), high), out)


@row("randint.low", "randint.low_generator", operands=("low", "high"), random=2)
def randint_from(low: Array, high: Array, size: Any, dtype: Any, rng: Array, out: Out) -> Array:
    """Integers of [low, high)."""
    return integers(rng, low, _span(low, high), out)


def _largest(x: Array) -> int:
    """The largest integer that random() may give: all that the dtype can count to exactly."""
    if x.dtype == np.bool_:
        return 1
    if is_float(x):
        return {"float64": 2**53, "float32": 2**24, "float16": 2**11}.get(x.dtype.name, 2**8)
    return min(int(np.iinfo(x.dtype).max), 2**63 - 1)


@row("random", random=2)
def random(self: Array, rng: Array, out: Out) -> Array:
    """Integers of [0, largest], also in floats."""
    return integers(rng, np.int64(0), np.uint64(_largest(self) + 1), out)


@row("random.to", operands=("to",), random=2)
def random_to(self: Array, to: Array, rng: Array, out: Out) -> Array:
    """Integers of [0, to)."""
    return integers(rng, np.int64(0), _span(np.int64(0), to), out)


@row("random.from", operands=("from", "to"), random=2)
def random_from(self: Array, rng: Array, out: Out, **bounds: Any) -> Array:
    """Integers of [from, to), or of [from, largest] without to."""
    low, high = bounds["from"], bounds["to"]
    if high is None:
        return integers(rng, low, lax.add(_span(low, np.int64(_largest(self))), np.uint64(1)), out)
    return integers(rng, low, _span(low, high), out)


@row("randperm", "randperm.generator", random=2)
def randperm(n: int, dtype: Any, rng: Array, out: Out) -> Array:
    """0..n-1 in random order: sorted by random 64-bit keys."""
    (size,), dtype = out[0]
    small = iota((size,), 0, np.int32)
    order = lax.sort((random_bits.draw64(rng, size), small), num_keys=1)[1] if size else small
    return as_dtype(order, dtype)


def _below(rng: Array, p: Array, out: Out) -> Array:
    shape, dtype = out[0]
    wide = p.dtype if p.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    return as_dtype(lax.lt(random_bits.unit(rng, shape, wide), broadcast_to(as_dtype(p, wide), shape)), dtype)


@row("bernoulli", random=WORDS)
def bernoulli(self: Array, rng: Array, out: Out) -> Array:
    """1 with probability self."""
    return _below(rng, self, out)


@row("bernoulli.p", random=WORDS)
def bernoulli_p(self: Array, p: Array, rng: Array, out: Out) -> Array:
    """1 with probability p."""
    return _below(rng, as_dtype(p, np.float64 if self.dtype == np.float64 else np.float32), out)


@row("bernoulli.Tensor", random=WORDS)
def bernoulli_tensor(self: Array, p: Array, rng: Array, out: Out) -> Array:
    """1 with probability p, elementwise, in self's dtype."""
    return _below(rng, p, out)


def _float_for(x: Array) -> np.dtype:
    """The float to draw in for a result of x's dtype (geometric fills integers too)."""
    return opmath(x.dtype) if is_float(x) else np.dtype(np.float32)


@row("exponential", random=WORDS)
def exponential(self: Array, lambd: Array, rng: Array) -> Array:
    """Exponential with rate lambd."""
    e = random_bits.exponential(rng, self.shape, _float_for(self))
    return as_dtype(lax.div(e, like(lambd, e)), self.dtype)


@row("geometric", random=WORDS)
def geometric(self: Array, p: Array, rng: Array) -> Array:
    """Trials up to and including the first success."""
    e = random_bits.exponential(rng, self.shape, _float_for(self))
    trials = lax.ceil(lax.div(e, like(lax.neg(lax.log1p(lax.neg(as_dtype(p, np.float64)))), e)))
    return as_dtype(lax.max(trials, constant(1, trials)), self.dtype)


@row("log_normal", random=WORDS)
def log_normal(self: Array, mean: Array, std: Array, rng: Array) -> Array:
    """exp(mean + std * z)."""
    z = random_bits.gaussian(rng, self.shape, _float_for(self))
    return as_dtype(lax.exp(random_bits.scaled(z, mean, std)), self.dtype)


@row("cauchy", random=WORDS)
def cauchy(self: Array, median: Array, sigma: Array, rng: Array) -> Array:
    """median + sigma * tan(pi * (u - 1/2))."""
    u = random_bits.open_unit(rng, self.size, _float_for(self))
    t = lax.tan(lax.mul(lax.sub(u, constant(0.5, u)), constant(np.pi, u)))
    return lax.reshape(as_dtype(random_bits.scaled(t, median, sigma), self.dtype), self.shape)


@row("rrelu_with_noise_functional", random=WORDS)
def rrelu_with_noise_functional(
    self: Array, noise: Array, lower: Array, upper: Array, training: bool, rng: Array
) -> tuple[Array, Array]:
    """Leaky ReLU whose slope is drawn per element in training and is the middle of the range else; and the slopes."""
    wide = opmath(self.dtype)
    x = as_dtype(self, wide)
    low, high = as_dtype(lower, wide), as_dtype(upper, wide)
    negative = lax.le(x, constant(0, x))
    if not training:
        slope = like(lax.mul(lax.add(low, high), np.asarray(0.5, wide)), x)
        return as_dtype(lax.select(negative, lax.mul(x, slope), x), self.dtype), noise
    u = random_bits.unit(rng, x.shape, self.dtype)
    drawn = as_dtype(random_bits.scaled(u, low, lax.sub(high, low)), self.dtype)
    slopes = lax.select(negative, drawn, constant(1, drawn))
    return as_dtype(lax.mul(x, as_dtype(slopes, wide)), self.dtype), as_dtype(slopes, noise.dtype)
