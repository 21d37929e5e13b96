"""Real models under torch.compile(backend="pjrt"): the forward pass, and a loss with its gradients."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.models.agreement import check, host, logits_of, start
from tests.models.zoo import build, placed
from torch_pjrt.errors import HostReadWarning


@pytest.mark.parametrize("name", ["bert", "llama", "convnext", "lstm"])
def test_compiled_forward_is_like_cpu(name: str) -> None:
    model, inputs = build(name)
    double = start(model, inputs, "cpu", torch.float64)
    ours = copy.deepcopy(model).to("pjrt")
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="pjrt")
    with torch.no_grad():
        truth = host(logits_of(double.model(**double.inputs)))
        cpu = host(logits_of(copy.deepcopy(model)(**inputs)))
        torch.pjrt.reset_stats()
        first = host(logits_of(compiled(**placed(inputs, "pjrt"))))
        before = torch.pjrt.stats()
        host(logits_of(compiled(**placed(inputs, "pjrt"))))
    check("logits", first, cpu, truth)
    assert before["fallbacks"] == {}
    assert torch.pjrt.stats()["compiles"] == before["compiles"]


def test_compiled_backward_is_like_cpu() -> None:
    model, inputs = build("gpt2")
    ours = copy.deepcopy(model).to("pjrt")
    torch._dynamo.reset()
    torch.compile(ours, backend="pjrt")(**placed(inputs, "pjrt")).loss.backward()
    model(**inputs).loss.backward()
    for (name, expected), got in zip(model.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(
            got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_operator_that_reads_values_runs_eagerly() -> None:
    """Dynamo cannot look into a custom operator; when its body reads values (here an input), the graph runs as in eager."""

    @torch.library.custom_op("torch_pjrt_tests::largest_rows", mutates_args=())
    def largest_rows(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
        return torch.where(x > limit.tolist()[0], x, torch.zeros_like(x))

    largest_rows.register_fake(lambda x, limit: torch.empty_like(x))
    x, limit = torch.arange(4.0, device="pjrt"), torch.tensor([1], device="pjrt")
    compiled = torch.compile(lambda a, b: largest_rows(a * 2, b) + 1, backend="pjrt", fullgraph=True)
    with pytest.warns(HostReadWarning):
        assert compiled(x, limit).tolist() == [1.0, 3.0, 5.0, 7.0]
    assert compiled(x + 1, limit).tolist() == [3.0, 5.0, 7.0, 9.0]
