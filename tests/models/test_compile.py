"""Real models under torch.compile, each as one graph: forward, backward and training steps as on the CPU, and generate()."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.models.agreement import check, compare, host, logits_of, start, train
from tests.models.zoo import MODELS, Inputs, build, padded, placed
from torch_pjrt.errors import HostReadWarning


@pytest.fixture(autouse=True)
def clean() -> None:
    """Dynamo forgets what other tests compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def warm(model: nn.Module, inputs: Inputs) -> nn.Module:
    """transformers installs hooks in a model's first call, under a lock, which Dynamo does not trace."""
    training = model.training
    with torch.no_grad():
        model.eval()(**inputs)
    return model.train(training)


@pytest.mark.parametrize("name", ["llama", "convnext"])
def test_compiled_forward_is_like_cpu(name: str) -> None:
    model, inputs = build(name)
    double = start(model, inputs, "cpu", torch.float64)
    ours = warm(copy.deepcopy(model).to("pjrt"), placed(inputs, "pjrt"))
    compiled = torch.compile(ours, fullgraph=True)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_compiled_model_trains_like_cpu(name: str) -> None:
    """One graph forward and one backward; logits, losses, gradients, weights and buffers judged by float64."""
    model, inputs = build(name)
    truth = train(start(model, inputs, "cpu", torch.float64))
    cpu = train(start(model, inputs, "cpu"))
    torch.pjrt.reset_stats()
    run = start(model, inputs, "pjrt")
    warm(run.model, run.inputs).compile(fullgraph=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        compare(train(run), cpu, truth)
    before = torch.pjrt.stats()
    assert before["fallbacks"] == {}
    assert before["captures"] == 2
    run.step()
    torch.pjrt.synchronize()
    after = torch.pjrt.stats()
    assert (after["compiles"], after["captures"]) == (before["compiles"], 2), torch.pjrt.explain_recompiles()


@pytest.mark.slow
def test_generate_with_a_static_cache_compiles_a_bounded_number_of_times() -> None:
    model, inputs = build("llama")
    model.eval()
    ids = inputs["input_ids"]
    prompt = {"input_ids": ids, "attention_mask": padded(ids, left=True)}
    options = {"do_sample": False, "eos_token_id": None, "cache_implementation": "static"}
    lengths = (4, 8)
    expected = {n: model.generate(**prompt, **options, max_new_tokens=n, max_length=None) for n in lengths}
    ours = copy.deepcopy(model).to("pjrt")
    ours.forward = torch.compile(ours.forward, fullgraph=True)
    counts = []
    for n in lengths:
        torch._dynamo.reset()
        torch.pjrt.reset_stats()
        got = ours.generate(**placed(prompt, "pjrt"), **options, max_new_tokens=n, max_length=None)
        assert torch.equal(got.cpu(), expected[n])
        counts.append(torch.pjrt.stats()["captures"])
    assert counts[0] == counts[1] <= 4, torch.pjrt.explain_recompiles()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("ahead", [0, 2])
def test_generate_with_a_growing_cache_captures_once_per_length(name: str, ahead: int) -> None:
    """Three graphs of Dynamo (prompt, one length, any length); with sizes_ahead, three lengths of the last are waited for."""
    model, inputs = build(name)
    model.eval()
    ids = inputs["input_ids"][:, :5]
    prompt = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "max_length": None, "max_new_tokens": 10}
    expected = model.generate(**prompt, **options)
    ours = copy.deepcopy(model).to("pjrt")
    ours.forward = torch.compile(ours.forward, backend="pjrt", fullgraph=True, options={"sizes_ahead": ahead})
    torch.pjrt.reset_stats()
    assert torch.equal(ours.generate(**placed(prompt, "pjrt"), **options).cpu(), expected)
    stats = torch.pjrt.stats()
    why = torch.pjrt.explain_recompiles()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3, why
    assert stats["captures"] - stats["captures_ahead"] <= (5 if ahead else 10), why
    assert stats["captures_ahead_used"] == (5 if ahead else 0), why
    assert stats["captures_ahead"] <= stats["captures_ahead_used"] + ahead, why


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
