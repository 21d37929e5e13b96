"""Real models train on the device as on the CPU: values, no fallbacks, no new programs after the second step."""

from __future__ import annotations

import pytest
import torch

from tests.models.agreement import compare, start, train
from tests.models.zoo import MODELS, build


@pytest.mark.parametrize("name", MODELS)
def test_trains_like_cpu(name: str) -> None:
    model, inputs = build(name)
    truth = train(start(model, inputs, "cpu", torch.float64))
    cpu = train(start(model, inputs, "cpu"))
    torch.pjrt.reset_stats()
    run = start(model, inputs, "pjrt")
    ours = train(run)
    compare(ours, cpu, truth)
    before = torch.pjrt.stats()
    assert before["fallbacks"] == {}
    run.step()
    torch.pjrt.synchronize()
    assert torch.pjrt.stats()["compiles"] == before["compiles"], torch.pjrt.explain_recompiles()
