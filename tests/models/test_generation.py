"""generate() gives the tokens that it gives on the CPU, with the growing cache and with the static one."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.models.zoo import build, padded, placed

TOKENS = 4


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generates_the_same_tokens(name: str, cache: str) -> None:
    model, inputs = build(name)
    model.eval()
    ids = inputs["input_ids"]
    prompt = {"input_ids": ids, "attention_mask": padded(ids, left=True)}
    options = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": None, "cache_implementation": cache}
    expected = model.generate(**prompt, **options)
    ours = copy.deepcopy(model).to("pjrt")
    torch.pjrt.reset_stats()
    got = ours.generate(**placed(prompt, "pjrt"), **options)
    assert expected.shape == (2, ids.shape[1] + TOKENS)
    assert torch.equal(got.cpu(), expected)
    assert torch.pjrt.stats()["fallbacks"] == {}


def test_static_cache_compiles_once() -> None:
    model, inputs = build("llama")
    model.eval().to("pjrt")
    ids = inputs["input_ids"].to("pjrt")
    counts = []
    for length in (4, 9):
        torch.pjrt.reset_stats()
        options = {"max_length": ids.shape[1] + 9, "do_sample": False, "eos_token_id": None}
        stop = [lambda tokens, *_, at=ids.shape[1] + length: torch.full((2,), tokens.shape[1] >= at, device="pjrt")]
        model.generate(ids, cache_implementation="static", stopping_criteria=stop, **options)
        counts.append(torch.pjrt.stats()["compiles"])
    assert counts[1] <= 6, counts
