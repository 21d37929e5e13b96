"""Random operators: the right distribution, the same numbers for the same seed, other numbers at the next call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from conformance.judging import eager_mode
from conformance.nodes import Node
from conformance.operands import DEVICE

N = 20_000
LEVEL = 1e-4  # seeds are fixed, so a right sampler that passes once passes always
Draw = Callable[[], torch.Tensor]


def _empty(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(size or (N,), dtype=dtype, device=DEVICE)


def _full(value: float, *size: int) -> torch.Tensor:
    return torch.full(size or (N,), value, device=DEVICE)


# name -> (draw N numbers, their distribution)
CONTINUOUS: dict[str, tuple[Draw, Any]] = {
    "rand": (lambda: torch.rand(N, device=DEVICE), stats.uniform()),
    "randn": (lambda: torch.randn(N, device=DEVICE), stats.norm()),
    "rand_like": (lambda: torch.rand_like(_empty()), stats.uniform()),
    "randn_like": (lambda: torch.randn_like(_empty()), stats.norm()),
    "uniform_": (lambda: _empty().uniform_(-2, 5), stats.uniform(-2, 7)),
    "normal_": (lambda: _empty().normal_(3, 2), stats.norm(3, 2)),
    "normal": (lambda: torch.normal(_full(1.0), _full(0.5)), stats.norm(1, 0.5)),
    "exponential_": (lambda: _empty().exponential_(1.5), stats.expon(scale=1 / 1.5)),
    "cauchy_": (lambda: _empty().cauchy_(1, 2), stats.cauchy(1, 2)),
    "log_normal_": (lambda: _empty().log_normal_(0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    "gamma": (lambda: torch._standard_gamma(_full(2.5)), stats.gamma(2.5)),
    "gamma of a small shape": (lambda: torch._standard_gamma(_full(0.3)), stats.gamma(0.3)),
    "dirichlet": (lambda: torch._sample_dirichlet(_full(1.5, N, 3))[:, 0], stats.beta(1.5, 3.0)),
    "beta": (lambda: torch.distributions.Beta(_full(2.0), _full(3.0)).sample(), stats.beta(2, 3)),
    "rrelu": (lambda: -torch.nn.functional.rrelu(_full(-1.0), 0.1, 0.4, training=True), stats.uniform(0.1, 0.3)),
    "double": (lambda: _empty(dtype=torch.float64).uniform_(), stats.uniform()),
}
DISCRETE: dict[str, tuple[Draw, Any]] = {
    "bernoulli": (lambda: torch.bernoulli(_full(0.3)), stats.bernoulli(0.3)),
    "bernoulli_": (lambda: _empty().bernoulli_(0.7), stats.bernoulli(0.7)),
    "randint": (lambda: torch.randint(-3, 9, (N,), device=DEVICE), stats.randint(-3, 9)),
    "randint of a large range": (lambda: torch.randint(0, 1 << 40, (N,), device=DEVICE) >> 36, stats.randint(0, 16)),
    "random_": (lambda: _empty(dtype=torch.int32).random_(0, 11), stats.randint(0, 11)),
    "geometric_": (lambda: _empty().geometric_(0.4), stats.geom(0.4)),
    "poisson": (lambda: torch.poisson(_full(3.5)), stats.poisson(3.5)),
    "poisson of a large rate": (lambda: torch.poisson(_full(40.0)), stats.poisson(40.0)),
    "binomial": (lambda: torch.binomial(_full(12.0), _full(0.35)), stats.binom(12, 0.35)),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([1.0, 2.0, 3.0, 4.0], device=DEVICE), N, replacement=True),
        stats.rv_discrete(values=(range(4), (0.1, 0.2, 0.3, 0.4))),
    ),
    "dropout": (lambda: torch.nn.functional.dropout(_full(0.75), 0.25), stats.bernoulli(0.75)),
    "randperm": (lambda: torch.randperm(N, device=DEVICE) % 7, stats.randint(0, 7)),
}


def nodes(test: str) -> Iterator[Node]:
    """Every sampler in both modes of running."""
    for name in (*CONTINUOUS, *DISCRETE):
        for mode in ("strict", "fused"):
            yield Node(test, name, "float32", mode)


def _numbers(draw: Draw) -> np.ndarray[Any, Any]:
    return draw().double().cpu().numpy()


def test_random(node: Node) -> None:
    """A Kolmogorov-Smirnov (or chi-squared) test, the first two moments, replay and independence."""
    draw, distribution = (CONTINUOUS | DISCRETE)[node.op]
    with eager_mode(node.mode):
        torch.manual_seed(20)
        first, second = _numbers(draw), _numbers(draw)
        torch.manual_seed(20)
        again = _numbers(draw)
    assert np.array_equal(first, again), "the same seed gives other numbers"
    assert not np.array_equal(first, second), "two calls give the same numbers"
    if node.op in CONTINUOUS:
        assert stats.kstest(first, distribution.cdf).pvalue > LEVEL
    else:
        _chi_squared(first, distribution)
    if np.isfinite(distribution.var()):
        error = np.sqrt(distribution.var() / N)
        assert abs(first.mean() - distribution.mean()) < 5 * error
    ranks = stats.spearmanr(first, second)
    if "multinomial" not in node.op:
        assert abs(ranks.statistic) < 5 / np.sqrt(N), "two calls are correlated"
    lag = stats.spearmanr(first[:-1], first[1:])
    if node.op != "randperm":
        assert abs(lag.statistic) < 5 / np.sqrt(N), "neighbours are correlated"


def _chi_squared(numbers: np.ndarray[Any, Any], distribution: Any) -> None:
    values, counts = np.unique(numbers, return_counts=True)
    expected = distribution.pmf(values) * len(numbers)
    assert (distribution.pmf(values) > 0).all(), "a value that cannot occur"
    enough = expected >= 5
    rest = len(numbers) - expected[enough].sum()
    seen = [*counts[enough], len(numbers) - counts[enough].sum()]
    want = [*expected[enough], rest]
    if rest < 5:
        seen[-2:], want[-2:] = [seen[-2] + seen[-1]], [want[-2] + want[-1]]
    assert stats.chisquare(seen, want).pvalue > LEVEL


@pytest.mark.parametrize("name", ["rand", "normal_", "poisson", "dropout", "randperm"])
def test_modes_agree(name: str) -> None:
    """One seed gives the same numbers whatever the mode."""
    draw = (CONTINUOUS | DISCRETE)[name][0]
    found = []
    for mode in ("strict", "fused"):
        with eager_mode(mode):
            torch.manual_seed(4)
            found.append(_numbers(draw))
    assert np.array_equal(*found)


def test_generators_are_independent() -> None:
    """A generator of one's own neither follows nor moves the default one."""
    torch.manual_seed(1)
    expected = torch.rand(100, device=DEVICE).cpu()
    torch.manual_seed(1)
    own = torch.Generator(device=DEVICE)
    own.manual_seed(1)
    a = torch.rand(100, device=DEVICE, generator=own).cpu()
    own.manual_seed(1)
    b = torch.rand(100, device=DEVICE, generator=own).cpu()
    assert torch.equal(a, b)
    assert torch.equal(torch.rand(100, device=DEVICE).cpu(), expected)
