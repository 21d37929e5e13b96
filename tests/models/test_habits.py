"""What users do to models: narrower dtypes, autocast, checkpointing, copies, and files of every kind."""

from __future__ import annotations

import copy
import io
import pathlib
from typing import Any

import pytest
import torch
from torch import nn

from tests.models.agreement import distance, host, logits_of
from tests.models.zoo import build, placed


def error(result: Any, truth: Any) -> float:
    """How far a model's output is from another's."""
    return distance(host(logits_of(result)), host(logits_of(truth)))


def same_weights(a: nn.Module, b: nn.Module) -> None:
    """Fail unless both have the same state, bit for bit, on whatever devices."""
    left, right = a.state_dict(), b.state_dict()
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name].cpu(), right[name].cpu()), name


def blank(model: nn.Module, device: str) -> nn.Module:
    """A copy on a device with all parameters zero."""
    other = copy.deepcopy(model).to(device)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    return other


@pytest.mark.parametrize(("name", "dtype"), [("llama", torch.bfloat16), ("bert", torch.float16)])
def test_narrow_model(name: str, dtype: torch.dtype) -> None:
    model, inputs = build(name)
    truth = model(**inputs)
    cpu = copy.deepcopy(model).to(dtype)(**placed(inputs, dtype))
    ours = copy.deepcopy(model).to("pjrt").to(dtype)
    result = ours(**placed(inputs, "pjrt", dtype))
    result.loss.backward()
    assert logits_of(result).dtype == logits_of(cpu).dtype
    assert all(p.grad.dtype == dtype for p in ours.parameters() if p.grad is not None)
    assert error(result, truth) <= 2 * error(cpu, truth) + 1e-4


@pytest.mark.parametrize("name", ["gpt2", "lstm"])
def test_autocast(name: str) -> None:
    model, inputs = build(name)
    truth = model(**inputs)
    with torch.autocast("cpu", torch.bfloat16):
        cpu = model(**inputs)
    ours = copy.deepcopy(model).to("pjrt")
    torch.pjrt.reset_stats()
    with torch.autocast("pjrt", torch.bfloat16):
        result = ours(**placed(inputs, "pjrt"))
    result.loss.backward()
    assert logits_of(result).dtype == logits_of(cpu).dtype
    assert error(result, truth) <= 2 * error(cpu, truth) + 1e-4
    assert torch.pjrt.stats()["fallbacks"] == {}


def test_gradient_checkpointing() -> None:
    model, inputs = build("llama")
    ours = copy.deepcopy(model).to("pjrt")
    ours.activation_checkpointing_enable()
    ours(**placed(inputs, "pjrt")).loss.backward()
    model(**inputs).loss.backward()
    for expected, got in zip(model.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "efficientnet"])
def test_state_dict_and_copies(name: str) -> None:
    model, _ = build(name)
    ours = copy.deepcopy(model).to("pjrt")
    twin = copy.deepcopy(ours)
    assert {p.device.type for p in twin.parameters()} == {"pjrt"}
    same_weights(twin, model)
    down, up = blank(model, "cpu"), blank(model, "pjrt")
    down.load_state_dict(ours.state_dict())
    up.load_state_dict(model.state_dict())
    same_weights(down, model)
    same_weights(up, model)
    same_weights(ours.cpu(), model)


def test_tied_weights_stay_tied() -> None:
    model = build("gpt2")[0].to("pjrt")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    twin = copy.deepcopy(model)
    assert twin.get_output_embeddings().weight is twin.get_input_embeddings().weight


def test_torch_save_of_a_whole_model() -> None:
    model, _ = build("lstm")
    file = io.BytesIO()
    torch.save(model.to("pjrt"), file)
    for device in ("cpu", "pjrt"):
        file.seek(0)
        loaded = torch.load(file, weights_only=False, map_location=device)
        assert {p.device.type for p in loaded.parameters()} == {device}
        same_weights(loaded, model)


def test_safetensors(tmp_path: pathlib.Path) -> None:
    from safetensors.torch import load_file, load_model, save_model

    model, _ = build("gpt2")
    file = str(tmp_path / "model.safetensors")
    save_model(copy.deepcopy(model).to("pjrt"), file)
    for device in ("cpu", "pjrt"):
        other = blank(model, device)
        load_model(other, file)
        assert {p.device.type for p in other.parameters()} == {device}
        same_weights(other, model)
    # safetensors knows devices of other makers by name, and all others by number
    loaded = load_file(file, device=0)
    assert {t.device.type for t in loaded.values()} == {"pjrt"}


def test_save_and_from_pretrained(tmp_path: pathlib.Path) -> None:
    model, inputs = build("llama")
    copy.deepcopy(model).to("pjrt").save_pretrained(tmp_path)
    same_weights(type(model).from_pretrained(tmp_path), model)
    ours = type(model).from_pretrained(tmp_path, device_map="pjrt")
    assert {p.device.type for p in ours.parameters()} == {"pjrt"}
    assert error(ours(**placed(inputs, "pjrt")), model.eval()(**inputs)) < 1e-5


@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention(compiled):
    """With a score_mod, eagerly and compiled; torch lets only listed devices in by itself."""
    from torch.nn.attention.flex_attention import flex_attention

    torch.manual_seed(0)
    host = [torch.randn(1, 2, 16, 8) for _ in range(3)]
    run = torch.compile(flex_attention, backend="pjrt") if compiled else flex_attention

    def tilted(score, b, h, q, k):
        return score + (q - k) * 0.1

    got = run(*(t.to("pjrt") for t in host), score_mod=tilted)
    torch.testing.assert_close(got.cpu(), flex_attention(*host, score_mod=tilted), rtol=1e-5, atol=1e-6)
