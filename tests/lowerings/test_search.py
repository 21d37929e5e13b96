"""Histograms: integers, which CPU torch refuses, and the way of counting that accelerators take."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from torch_pjrt.lowerings.search import histc


def _counted(values: np.ndarray, platform: str, bins: int, low: float, high: float) -> list[int]:
    with jax.enable_x64(True):
        kind = np.float64 if values.dtype.kind == "f" else np.int64
        ends = {"min": kind(low), "max": kind(high)}
        return np.asarray(jax.jit(lambda x: histc(x, platform=platform, bins=bins, **ends).value)(values)).tolist()


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize(("bins", "low", "high"), [(8, 0, 7), (5, -3, 50), (7, 0, 0), (300, 0, 99)])
def test_integers_are_counted_by_integer_division(platform: str, bins: int, low: int, high: int) -> None:
    values = np.random.default_rng(0).integers(0, 100, 200).astype(np.int32)
    first, last = (low, high) if low != high else (int(values.min()), int(values.max()))
    expected = [0] * bins
    for v in values.tolist():
        if first <= v <= last:
            expected[min((v - first) * bins // (last - first), bins - 1)] += 1
    assert _counted(values, platform, bins, low, high) == expected


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("size", [0, 1, 300])
def test_floats_are_counted_as_on_the_cpu(platform: str, size: int) -> None:
    values = np.random.default_rng(1).normal(size=size).astype(np.float32)
    for low, high in ((-1.0, 1.0), (0.0, 0.0)):
        if size or low != high:
            expected = torch.histc(torch.from_numpy(values), 9, low, high).tolist()
            assert _counted(values, platform, 9, low, high) == expected


def test_large_integers_keep_their_part() -> None:
    """2**53 + 1 is no float64."""
    values = np.array([2**53, 2**53 + 1, 2**53 + 2])
    assert _counted(values, "cpu", 3, 2**53, 2**53 + 2) == [1, 1, 1]
