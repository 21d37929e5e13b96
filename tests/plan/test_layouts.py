"""Memory, traffic and waiting of layouts, against counts by hand for published models."""

from __future__ import annotations

import functools

import pytest

from torch_pjrt.plan import collectives, estimate, families, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import chips
from torch_pjrt.plan.layout import Layout, bubble, candidates, parse, stretch
from torch_pjrt.plan.memory import memory_of
from torch_pjrt.plan.work import Work
from torch_pjrt.plan.workload import ModelError, PlanError, Workload

LLAMA_70B = 70_553_706_496  # parameters of Llama 3 70B
H100 = chips()["h100"]


@functools.cache
def counted(model: str, load: Workload) -> Work:
    """Recorded once for this file."""
    return work.of(families.subject(model, load), load)


def sent(load: Work, layout: Layout) -> dict[str, float]:
    """Bytes that each chip sends, by axis."""
    return {t.axis: t.sent for t in collectives.transfers(load, layout)}


def test_zero_3_of_llama_70b_over_64_chips() -> None:
    load = counted("llama3-70b", Workload("train", batch=64, sequence=128))
    assert load.parameters == LLAMA_70B
    held = memory_of(load, H100, Layout(64, zero=3, recompute="full"), Assumptions())
    assert held.weights == pytest.approx(4 * LLAMA_70B / 64)
    assert held.gradients == pytest.approx(4 * LLAMA_70B / 64)
    assert held.states == pytest.approx(8 * LLAMA_70B / 64, rel=1e-6)  # AdamW: two moments in float32
    gathered = 2 * 2 * LLAMA_70B / 80  # two blocks, in bfloat16
    assert held.workspace > gathered
    # weights of a block: attention 8192 x (8192 + 2 x 1024 + 8192), MLP 3 x 8192 x 28672, two norms
    block = 8192 * (8192 + 2 * 1024 + 8192) + 3 * 8192 * 28672 + 2 * 8192
    assert 80 * block + 2 * 128256 * 8192 + 8192 == LLAMA_70B


def test_stages_of_zero() -> None:
    load = counted("llama3-70b", Workload("train", batch=64, sequence=128))
    held = [memory_of(load, H100, Layout(64, zero=z, recompute="full"), Assumptions()) for z in range(4)]
    whole, part = 4 * LLAMA_70B, 4 * LLAMA_70B / 64
    assert [h.states for h in held] == pytest.approx([2 * whole, 2 * part, 2 * part, 2 * part], rel=1e-6)
    assert [h.gradients for h in held] == pytest.approx([whole, whole, part, part])
    narrow = whole / 2 + part  # all in bfloat16 to compute with, and a part in float32 to update
    assert [h.weights for h in held] == pytest.approx([whole, narrow, narrow, part])
    v = 2 * LLAMA_70B * 63 / 64
    got = [sent(load, Layout(64, zero=z))["data"] for z in range(4)]
    assert got == pytest.approx([2 * v, 2 * v, 2 * v, 3 * v])
    parts = sent(load, Layout(32, zero=3, microbatches=2))["data"]
    assert parts == pytest.approx(5 * 2 * LLAMA_70B * 31 / 32)  # gathers weights twice in each of two parts


def test_tensor_parallel_decoding_of_llama_70b() -> None:
    load = counted("llama3-70b", Workload("decode", batch=1, sequence=4096))
    assert load.reduced == 2 * 80 * 8192 * 2  # two all-reduces of a row of 8192 bfloat16 in each of 80 layers
    got = sent(load, Layout(1, 8))
    assert got == {"tensor": pytest.approx(2 * 7 / 8 * 2 * 80 * 8192 * 2)}
    held = memory_of(load, H100, Layout(1, 8), Assumptions())
    assert held.weights == pytest.approx(2 * LLAMA_70B / 8)
    assert held.cache == pytest.approx(2 * 80 * 4096 * 8 * 128 * 2 / 8)
    wide = memory_of(load, H100, Layout(1, 16), Assumptions())
    assert wide.cache == held.cache  # eight heads of keys cannot be split over sixteen chips


def test_bubble_of_a_pipeline() -> None:
    assert bubble(Layout(pipeline=4, microbatches=12)) == pytest.approx(3 / 15)
    assert bubble(Layout(pipeline=8, microbatches=8)) == pytest.approx(7 / 15)
    assert bubble(Layout(pipeline=4, microbatches=3), accumulate=4) == pytest.approx(3 / 15)
    assert bubble(Layout()) == 0
    assert bubble(Layout(pipeline=4, microbatches=4), decode=True) == 0
    assert bubble(Layout(pipeline=4, microbatches=1), decode=True) == pytest.approx(3 / 4)


def test_time_and_memory_of_a_pipeline() -> None:
    load = counted("tiny", Workload("train", batch=16, sequence=64))
    plain = " ".join("matmul bandwidth network expert-load memory power".split()).replace(" ", "=1 ") + "=1"
    assumed = Assumptions([*plain.split(), "overlap=0", "overlap-tensor=0", "kernel=0", "collective=0", "causal=0"])
    whole = estimate.step_time(load, H100, Layout(microbatches=8), assumed)
    piped = estimate.step_time(load, H100, Layout(pipeline=2, microbatches=8), assumed)
    assert whole is not None and piped is not None
    work_of_a_stage = sum(whole[1].values()) / 2
    assert piped[1]["pipeline bubble"] == pytest.approx(work_of_a_stage * 1 / 8, rel=1e-6)
    assert sent(load, Layout(pipeline=2, microbatches=8)) == {"pipeline": 2 * 16 * 64 * 64 * 2}
    one, two = (memory_of(load, H100, Layout(pipeline=p, microbatches=8), assumed).activations for p in (1, 2))
    assert two == pytest.approx(one)  # half the layers, two microbatches in flight
    assert stretch(counted("llama3-70b", Workload("decode", batch=1, sequence=4096)), Layout(pipeline=3)) == 81 / 80


def test_experts_of_mixtral() -> None:
    tokens = 64 * 128
    load = counted("mixtral-8x7b", Workload("train", batch=64, sequence=128))
    experts = 32 * 8 * 3 * 4096 * 14336
    assert load.parameters == 46_702_792_704 and load.expert_weights == 4 * experts
    got = sent(load, Layout(8, zero=3, expert=8))
    copies = tokens / 8 * 2 * 4096 * 2  # of a chip: two experts for each token, bfloat16
    # out and back, in each of 32 layers, forward and backward; 7 of 8 go to another chip
    assert got["expert"] == pytest.approx(copies * 2 * 32 * 2 * 7 / 8)
    dense = load.parameters - experts
    assert got["data"] == pytest.approx(3 * 2 * dense * 7 / 8)  # experts have one copy: nothing to sum
    held = memory_of(load, H100, Layout(8, zero=0, expert=8, recompute="full"), Assumptions())
    assert held.weights == pytest.approx(4 * (dense + experts / 8))
    half = sent(load, Layout(16, zero=3, expert=8))["data"]
    assert half == pytest.approx(3 * 2 * (dense * 15 / 16 + experts / 8 * 1 / 2))


def test_context_parallelism_of_llama_8b() -> None:
    load = counted("llama3-8b", Workload("prefill", batch=1, sequence=8192))
    block = 2 * 8192 / 4 * 8 * 128 * 2  # keys and values of a chip's 2048 tokens in one layer
    assert sent(load, Layout(context=4)) == {"context": pytest.approx(3 * 32 * block)}
    held = memory_of(load, H100, Layout(context=4), Assumptions())
    assert held.cache == pytest.approx(32 * block) and held.weights == pytest.approx(2 * 8_030_261_248)


def test_wide_groups_leave_the_domain() -> None:
    load = counted("mixtral-8x7b", Workload("train", batch=64, sequence=128))
    assumed = Assumptions(["network=1", "collective=0", "between=50"])
    near, far = (
        next(t for t in collectives.transfers(load, Layout(d, zero=3, expert=8)) if t.axis == "expert") for d in (8, 64)
    )
    wide = next(
        t for t in collectives.transfers(load, Layout(8, 2, zero=3, expert=8)) if t.axis == "expert"
    )  # every second chip of sixteen: four of the eight are in the domain
    assert collectives.seconds(near, H100, assumed, True) == pytest.approx(near.sent / 450e9)
    assert collectives.seconds(far, H100, assumed, True) == pytest.approx(far.sent / 450e9)
    crossing = wide.sent * (3 / 7 / 450e9 + 4 / 7 / 50e9)
    assert collectives.seconds(wide, H100, assumed, True) == pytest.approx(crossing)


def test_what_is_tried() -> None:
    load = counted("mixtral-8x7b", Workload("train", batch=64, sequence=128))
    tried = set(candidates(load, 8, 16, {}))
    assert {x.zero for x in tried} == {0, 1, 2, 3} and {x.expert for x in tried} == {1, 2, 4, 8}
    assert {x.tensor for x in tried} == {1, 2, 4, 8} and max(x.pipeline for x in tried) == 16
    assert {x.recompute for x in tried} == {"none"} and all(x.chips == 16 for x in tried)
    fixed = set(candidates(load, 8, 16, {"tensor": 2, "zero": 3, "microbatches": 2}))
    assert fixed and all((x.tensor, x.zero, x.microbatches) == (2, 3, 2) for x in fixed)
    decode = counted("llama3-70b", Workload("decode", batch=1, sequence=4096))
    assert all(x.zero == 0 and x.data == 1 and x.context == 1 for x in candidates(decode, 8, 8, {}))


def test_recomputation_is_chosen_where_it_is_needed() -> None:
    load = counted("llama3-8b", Workload("train", batch=8, sequence=8192, recompute="auto"))
    tight = estimate.for_chip(load, H100, Assumptions(["memory=0.7"]), 8)
    roomy = estimate.for_chip(load, chips()["gb300"], Assumptions(), 8)
    assert tight.layout is not None and tight.layout.recompute != "none"
    assert roomy.layout is not None and roomy.layout.recompute == "none"
    assert tight.others and all(step.mid > 0 and memory <= tight.memory.usable for _, step, memory in tight.others)


def test_layouts_by_name() -> None:
    assert parse("data=8, tensor=4,zero=3") == {"data": 8, "tensor": 4, "zero": 3}
    for wrong, says in (
        ("tenser=2", "did you mean 'tensor'"),
        ("zero=9", "from 0 on"),
        ("data=x", "whole"),
        ("", "no axis"),
    ):
        with pytest.raises(PlanError, match=says):
            parse(wrong)
    assert Layout(8, 2, 3, recompute="full").text == "FSDP 8 x tensor 2, full recompute"
    assert Layout(1, 1, 1, context=2, microbatches=4).text == "ZeRO-1 x context 2 in 4 microbatches"
    with pytest.raises(ModelError, match="blocks are known"):
        work.of(families.subject("resnet50", Workload("train", 2)), Workload("train", 2, recompute="full"))
