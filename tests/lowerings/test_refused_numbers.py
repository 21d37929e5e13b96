"""Numbers that CPU torch refuses: ranges of histograms, offsets of bags. Some are known only on the device."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from torch_pjrt.errors import InvalidOperandError

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("limits", [(0.0, INF), (-INF, 0.0), (NAN, 1.0), (3.0, 1.0)])
@pytest.mark.parametrize(
    "count",
    [
        lambda x, low, high: torch.histc(x, 3, low, high),
        lambda x, low, high: torch.histogram(x, 3, range=(low, high)),
        lambda x, low, high: torch.histogramdd(x[:, None], [3], range=[low, high]),
    ],
    ids=["histc", "histogram", "histogramdd"],
)
def test_ranges_are_refused_at_the_call(count: Callable[..., object], limits: tuple[float, float]) -> None:
    x = torch.tensor([1.0, 2.0])
    for given in (x, x.to("pjrt")):
        with pytest.raises(RuntimeError):
            count(given, *limits)


@pytest.mark.parametrize(
    "count",
    [
        lambda x: torch.histc(x, 3),
        lambda x: torch.histogram(x, 3).hist,
        lambda x: torch.histogramdd(x[:, None], [3]).hist,
    ],
    ids=["histc", "histogram", "histogramdd"],
)
def test_ranges_of_the_data_are_refused_when_known(count: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for last in (NAN, INF, -INF):
        x = torch.tensor([1.0, last])
        with pytest.raises(RuntimeError, match="not finite"):
            count(x)
        with pytest.raises(InvalidOperandError, match="not finite"):
            count(x.to("pjrt")).cpu()
    x = torch.tensor([1.0, 2.0, 2.0])
    assert torch.equal(count(x.to("pjrt")).cpu(), count(x))


def test_bins_and_edges_are_refused() -> None:
    x = torch.ones(3, device="pjrt")
    for call in (
        lambda: torch.histc(x, 0),
        lambda: torch.histogram(x, 0),
        lambda: torch.histogram(x, x[:1]),
        lambda: torch.histogramdd(x[:, None], [x[:1]]),
        lambda: torch.histogramdd(x[:, None], [3], range=[0.0, 1.0, 2.0]),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert torch.histc(x, 2, INF, INF).tolist() == torch.histc(x.cpu(), 2, INF, INF).tolist()


@pytest.mark.parametrize("offsets", [[1, 2, 4], [0, 4, 2], [0, 2, 9], [0, -1, 2]])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets_of_bags_rise_from_zero_to_the_end(mode: str, offsets: list[int]) -> None:
    table, indices = torch.ones(5, 2, device="pjrt"), torch.tensor([0, 1, 2, 3, 4], device="pjrt")
    found = F.embedding_bag(indices, table, torch.tensor(offsets, device="pjrt"), mode=mode)
    with pytest.raises(InvalidOperandError, match="offsets"):
        found.cpu()


def test_weights_of_bags_have_the_tables_dtype() -> None:
    table, indices = torch.ones(5, 2, device="pjrt"), torch.tensor([[0, 1]], device="pjrt")
    with pytest.raises(RuntimeError, match="per_sample_weights"):
        F.embedding_bag(indices, table, mode="sum", per_sample_weights=torch.ones(1, 2, device="pjrt").double())


def test_largest_of_a_bag_with_nan() -> None:
    """torch compares from the first row on, so a NaN stays where it is first and is passed over elsewhere."""
    rows = torch.tensor([[1.0, NAN], [NAN, 3.0], [-INF, INF], [NAN, NAN], [5.0, -6.0]])
    indices, offsets = torch.tensor([0, 1, 2, 3, 4, 0, 3]), torch.tensor([0, 2, 2, 4, 6])
    results = []
    for device in ("cpu", "pjrt"):
        table = rows.to(device).requires_grad_()
        found = F.embedding_bag(indices.to(device), table, offsets.to(device), mode="max")
        gradient = torch.autograd.grad(found.sum(), table)[0]
        results.append([found.detach().cpu(), gradient.cpu()])
    torch.testing.assert_close(results[1], results[0], equal_nan=True)


def test_probabilities_are_refused_in_their_own_words() -> None:
    with pytest.raises(InvalidOperandError, match="probability"):
        torch.multinomial(torch.tensor([1.0, -1.0], device="pjrt"), 1).cpu()
