"""What a program is said to cost: against counts by hand, and against the CPU compiler's own analysis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from torch_pjrt.export.trace import trace
from torch_pjrt.plan import fusion, graph
from torch_pjrt.program.evaluate import NUMBER_WORDS, evaluate


def shape(*size: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    """An array of which only the shape exists."""
    return jax.ShapeDtypeStruct(size, np.dtype(dtype))


def meta(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of which only the shape exists."""
    return torch.empty(size, dtype=dtype, device="meta")


def traffic(made: graph.Graph) -> float:
    """Bytes of all kernels."""
    return sum(g.bytes * g.count for g in fusion.Fusion(made).groups())


def kernels(made: graph.Graph) -> int:
    """How many kernels."""
    return len(fusion.Fusion(made).groups())


def test_product() -> None:
    made = graph.of_function(lambda a, b: a @ b, shape(8, 32), shape(32, 16))
    assert made.matmul == 2 * 8 * 32 * 16
    assert traffic(made) == 4 * (8 * 32 + 32 * 16 + 8 * 16)


def test_batched_product() -> None:
    made = graph.of_function(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), shape(5, 8, 32), shape(5, 32, 16))
    assert made.matmul == 2 * 5 * 8 * 32 * 16


def test_convolution() -> None:
    def conv(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")

    made = graph.of_function(conv, shape(2, 3, 10, 10), shape(4, 3, 5, 5))
    assert made.matmul == 2 * (2 * 4 * 10 * 10) * 3 * 5 * 5


def test_elementwise_chain_is_one_kernel() -> None:
    made = graph.of_function(lambda x, y: jnp.tanh(x * y + 1.0) * x, shape(1000), shape(1000))
    assert kernels(made) == 1
    assert traffic(made) == 3 * 4000
    assert made.flops == 4 * 1000


def test_reduction_takes_its_producers_in() -> None:
    made = graph.of_function(lambda x: jnp.sum(jnp.exp(x) * 2.0, axis=1), shape(100, 50))
    assert kernels(made) == 1
    assert traffic(made) == 4 * (100 * 50 + 100)


def test_tail_of_a_product() -> None:
    made = graph.of_function(lambda a, b, c: jax.nn.relu(a @ b + c), shape(8, 32), shape(32, 16), shape(16))
    assert kernels(made) == 1
    assert traffic(made) == 4 * (8 * 32 + 32 * 16 + 16 + 8 * 16)


def test_what_a_product_reads_is_written() -> None:
    made = graph.of_function(lambda a, b: jnp.exp(a) @ b, shape(8, 32), shape(32, 16))
    assert kernels(made) == 2
    assert traffic(made) == 4 * (2 * 8 * 32) + 4 * (8 * 32 + 32 * 16 + 8 * 16)


def test_slices_and_gathers_read_what_they_give() -> None:
    made = graph.of_function(lambda x: x[:10] * 2.0, shape(1000))
    assert traffic(made) == 4 * 20
    made = graph.of_function(lambda x, i: x.at[i].get(mode="clip"), shape(1000, 64), shape(3, dtype="int32"))
    assert traffic(made) < 4 * 3 * 64 * 2 + 100


def test_scan_counts_its_turns() -> None:
    def loop(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=7)[0]

    made = graph.of_function(loop, shape(4, 4), shape(4, 4))
    assert made.matmul == 7 * 2 * 4 * 4 * 4


def test_while_says_that_its_turns_are_unknown() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda v: v[0] < 1e3, lambda v: v * 2.0, x)

    assert any(n.trips_unknown for n in graph.of_function(loop, shape(4)).nodes)


def test_narrow_dtypes_are_written_narrow() -> None:
    made = graph.of_function(
        lambda x: jnp.exp(x.astype(jnp.float32)).astype(jnp.bfloat16), shape(100, dtype="bfloat16")
    )
    assert traffic(made) == 2 * 200


def block(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    """An MLP with a norm."""
    y = F.gelu(F.layer_norm(x, (x.shape[-1],)) @ w1)
    return torch.softmax(y @ w2, -1)


@pytest.fixture(scope="module")
def traced():  # noqa: ANN201
    """The MLP, recorded."""
    return trace(block, [meta(64, 32), meta(32, 128), meta(128, 16)])


def whole(traced):  # noqa: ANN001, ANN201
    """The same Program as one jaxpr's function, and its arguments."""
    program = traced.program
    words = shape(sum(NUMBER_WORDS[k] for k in program.number_kinds), dtype="uint32")
    return evaluate(program), [words, *(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in program.in_specs)]


def test_splicing_equals_the_whole_program(traced) -> None:  # noqa: ANN001
    function, args = whole(traced)
    with jax.enable_x64(True):
        straight = graph.of_function(function, *args)
    assert graph.of_traced(traced).matmul == straight.matmul == 2 * 64 * 32 * 128 + 2 * 64 * 128 * 16


def test_flops_against_the_compiler(traced) -> None:  # noqa: ANN001
    function, args = whole(traced)
    with jax.enable_x64(True):
        costs = jax.jit(function).lower(*args).compile().cost_analysis()
    ours = graph.of_traced(traced)
    assert ours.matmul <= costs["flops"]
    assert ours.flops == pytest.approx(costs["flops"], rel=0.25)


@pytest.mark.parametrize("size", [256, 4096])
def test_traffic_against_the_compiler(size: int) -> None:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.maximum(x * y + x, 0.0) - y

    args = shape(size, 64), shape(size, 64)
    costs = jax.jit(function).lower(*args).compile().cost_analysis()
    assert traffic(graph.of_function(function, *args)) == pytest.approx(costs["bytes accessed"], rel=0.01)


def test_attention_is_one_kernel_and_may_skip_half() -> None:
    q = meta(2, 4, 64, 16, dtype=torch.bfloat16)
    made = graph.of_traced(trace(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [q]))
    groups = [g for g in fusion.Fusion(made).groups() if g.name == "attention"]
    assert len(groups) == 1
    assert groups[0].flops == 2 * 2 * (2 * 4 * 64 * 64 * 16)
    assert groups[0].skippable == groups[0].flops / 2
    assert groups[0].bytes < 2 * 2 * 4 * 64 * 64  # no scores


@pytest.mark.parametrize(
    ("length", "dtype", "causal"),
    [(256, torch.float32, False), (512, torch.float32, True), (512, torch.bfloat16, True)],
)
def test_traffic_of_attention_against_the_compiler(length: int, dtype: torch.dtype, causal: bool) -> None:
    """XLA writes attention's scores: so does the plan's default. A flash kernel's traffic is far from what XLA counts."""
    q = meta(2, 4, length, 64, dtype=dtype)
    recorded = trace(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, q, q])
    function, args = whole(recorded)
    with jax.enable_x64(True):
        costs = jax.jit(function).lower(*args).compile().cost_analysis()
    written = traffic(graph.of_traced(recorded, fused_attention=False)) / costs["bytes accessed"]
    fused = traffic(graph.of_traced(recorded, fused_attention=True)) / costs["bytes accessed"]
    assert 0.6 < written < 1.2 and fused < 0.15


def test_training_is_three_forwards() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64, device="meta"), torch.nn.ReLU(), torch.nn.Linear(64, 8, device="meta")
    )
    forward = graph.of_traced(trace(model, [meta(16, 32)])).matmul
    step = graph.of_traced(trace(model, [meta(16, 32)], train=True))
    assert forward == 2 * 16 * (32 * 64 + 64 * 8)
    assert step.matmul == 3 * forward - 2 * 16 * 32 * 64  # nothing asks for the gradient of the input
    assert {"forward", "backward", "optimizer"} == {g.phase for g in fusion.Fusion(step).groups()}


def test_cache_is_updated_in_place() -> None:
    def write(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        cache[:, -1:] = new
        return cache.sum()

    made = graph.of_traced(trace(write, [meta(4, 1000, 8), meta(4, 1, 8)]))
    assert traffic(made) < 4 * (4 * 1000 * 8) * 1.1


def test_peak_of_a_chain() -> None:
    def chain(x: jax.Array, w: jax.Array) -> jax.Array:
        return ((x @ w) @ w) @ w

    made = graph.of_function(chain, shape(100, 100), shape(100, 100))
    assert fusion.Fusion(made).peak_bytes() == 2 * 4 * 100 * 100
