"""Times, memory, layouts and ranks, against sums by hand on a chip of round numbers."""

from __future__ import annotations

import pytest

from torch_pjrt import aot
from torch_pjrt.plan import compare, estimate, families, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.calibration import Calibration, Entry
from torch_pjrt.plan.chips import Chip, Fact, Price, chips
from torch_pjrt.plan.estimate import Layout, Range
from torch_pjrt.plan.fusion import Group
from torch_pjrt.plan.work import Work
from torch_pjrt.plan.workload import ModelError, PlanError, Workload

PLAIN = (
    "matmul=1 bandwidth=1 network=1 overlap=0 overlap-tensor=0 kernel=0 collective=0 causal=0 memory=1 power=1".split()
)


def chip(name: str = "round", memory: float = 100e9, link: float | None = 100e9, domain: float = 8) -> Chip:
    """A hundred teraflops, a terabyte a second."""
    facts = {
        "bfloat16": Fact(100e12, ""),
        "memory": Fact(memory, ""),
        "bandwidth": Fact(1e12, ""),
        "interconnect": Fact(link, "", direction="one"),
        "domain": Fact(domain, ""),
        "power": Fact(500, ""),
    }
    return Chip(name, name, "us", "gpu", "", facts)


def made(kind: str = "train", **sizes: float) -> Work:
    """One product of 100 ms, and one copy of 10 ms of which half is weights."""
    load = Workload(kind, batch=8, sequence=100)
    groups = [
        Group("dot_general", matmul={"bfloat16": 10e12}, bytes=1e9),
        Group("copy", bytes=10e9, weight_bytes=5e9),
    ]
    return Work("made", load, "token", 800, groups, layers=4, reduced=8e9, reduces=8, **sizes)  # type: ignore[arg-type]


def test_roofline() -> None:
    timed = estimate.step_time(made(), chip(), Layout(1, 1, False), Assumptions(PLAIN))
    assert timed is not None
    assert timed[0].low == timed[0].high == pytest.approx(0.110)
    assert timed[1]["compute"] == pytest.approx(0.1) and timed[1]["memory bandwidth"] == pytest.approx(0.01)


def test_splitting() -> None:
    assumed = Assumptions(PLAIN)
    inference = made("prefill", compute=16e9)
    data = estimate.step_time(inference, chip(), Layout(2, 1, False), assumed)
    tensor = estimate.step_time(inference, chip(), Layout(1, 2, False), assumed)
    assert data is not None and tensor is not None
    assert data[0].low == pytest.approx(0.05 + 0.0075)  # every chip reads all weights
    assert tensor[0].low == pytest.approx(0.055 + 2 * 8e9 * 0.5 / 100e9)  # an all-reduce moves it twice


def test_training_exchanges_gradients() -> None:
    assumed = Assumptions(PLAIN)
    load = made(compute=16e9)
    data = estimate.step_time(load, chip(), Layout(2, 1, False), assumed)
    fsdp = estimate.step_time(load, chip(), Layout(2, 1, True), assumed)
    assert data is not None and fsdp is not None
    assert data[1]["interconnect"] == pytest.approx(2 * 16e9 * 0.5 / 100e9)
    assert fsdp[1]["interconnect"] == pytest.approx(3 * 16e9 * 0.5 / 100e9)


def test_a_wider_group_goes_over_the_network() -> None:
    assumed = Assumptions([*PLAIN, "between=10"])
    near = estimate.step_time(made(compute=16e9), chip(domain=8), Layout(8, 1, True), assumed)
    far = estimate.step_time(made(compute=16e9), chip(domain=4), Layout(8, 1, True), assumed)
    assert near is not None and far is not None and far[0].low > near[0].low
    assert far[1]["interconnect"] == pytest.approx(3 * 16e9 * 7 / 8 * (1 / 100e9 + 1 / 4 / 10e9))


def test_memory_and_the_fewest_chips() -> None:
    load = made(weights=200e9, gradients=100e9, states=100e9, activations=80e9, compute=50e9)
    found = estimate.for_chip(load, chip(), Assumptions(PLAIN))
    assert found.layout == Layout(1, 8, False)  # sums of activations are less than gathered weights here
    assert found.memory is not None and found.memory.total == pytest.approx((400e9 + 80e9) / 8)
    fsdp = estimate.memory_of(load, chip(), Layout(8, 1, True), Assumptions(PLAIN))
    assert fsdp.total == pytest.approx((400e9 + 80e9) / 8 + 2 * 50e9 / 4)
    data = estimate.memory_of(load, chip(), Layout(8, 1, False), Assumptions(PLAIN))
    assert data.total == pytest.approx(400e9 + 80e9 / 8) and not data.fits
    assert estimate.for_chip(load, chip(link=None), Assumptions(PLAIN)).step is None
    assert "does not fit" in estimate.for_chip(load, chip(), Assumptions(PLAIN), count=2).reason


def test_a_deadline_takes_more_chips() -> None:
    load = made()
    load.workload = Workload("train", batch=8, sequence=100, quantity=8000, deadline=0.5)
    found = estimate.for_chip(load, chip(), Assumptions(PLAIN))
    assert found.meets and found.layout is not None and found.layout.chips == 4
    load.workload = Workload("train", batch=8, sequence=100, latency=1e-6)
    late = estimate.for_chip(load, chip(), Assumptions(PLAIN))
    assert late.meets is False and "misses" in late.reason


def test_money_and_energy() -> None:
    plan = compare.plan(made(), [chip()], [Price("round", "on-demand", 3.6)], Assumptions([*PLAIN, "utilisation=0.25"]))
    row = plan.rows[0]
    assert row.cost is not None and row.cost_allocated is not None and row.energy is not None
    assert row.cost.mid == pytest.approx(0.110 / 800 * 1e6 * 0.001)
    assert row.cost_allocated.mid == pytest.approx(4 * row.cost.mid)
    assert row.energy.mid == pytest.approx(0.110 * 500 / 800)


def test_no_rank_inside_the_error_bar() -> None:
    prices = [Price("a", "on-demand", 1.0), Price("b", "on-demand", 1.2), Price("c", "on-demand", 50.0)]
    plan = compare.plan(made(), [chip(n) for n in "abc"], prices, Assumptions())
    assert plan.cheapest == "a" and plan.near_cheapest == ["b"]
    assert [r.standing for r in plan.rows][1] == [
        "within the error bar of the cheapest",
        "within the error bar of the fastest",
    ]
    assert not any("cheapest" in w for w in plan.rows[2].standing)
    assert Range(1, 2).overlaps(Range(2, 3)) and not Range(1, 2).overlaps(Range(2.1, 3))


def test_a_measured_run_replaces_the_estimate() -> None:
    load = made()
    entry = Entry("round", "made", "train", 8, 100, "bfloat16", 1, 0.2, 0.19, 0.22, 0.1, "2026-01-01", "here")
    exact = compare.plan(load, [chip()], [], Assumptions(PLAIN), calibration=Calibration([entry])).rows[0]
    assert exact.step == Range(0.19, 0.22) and exact.method.startswith("measured here")
    load.name = "other"
    scaled = compare.plan(load, [chip()], [], Assumptions(PLAIN), calibration=Calibration([entry])).rows[0]
    assert scaled.step is not None and scaled.step.mid == pytest.approx(0.22) and "scaled" in scaled.method


SIZES = {"gpt2": 124_439_808, "resnet50": 25_557_032, "llama3-8b": 8_030_261_248, "unet": 859_520_964}


@pytest.mark.parametrize("name", SIZES)
def test_parameters_of_published_models(name: str) -> None:
    kind = "batch-infer" if name in families.IMAGES else "decode"
    model = families.subject(name, Workload(kind, 1, 16)).model
    assert sum(p.numel() for p in model.parameters()) == SIZES[name]
    assert all(p.is_meta for p in model.parameters())


def test_work_of_a_decoder() -> None:
    load = Workload("train", batch=2, sequence=128)
    count = work.of(families.subject("gpt2", load), load)
    products = 12 * (4 * 768 * 768 + 2 * 768 * 3072) + 768 * 50257  # attention's q, k, v, o; the MLP; the head
    scores = 12 * 2 * 12 * 128 * 128 * 64
    assert count.flops == pytest.approx(6 * 256 * products + 2 * 2 * scores * 3.5, rel=1e-6)
    assert count.states == pytest.approx(2 * count.weights, rel=1e-3)
    assert count.gradients == count.weights


def test_recompute_and_accumulation() -> None:
    plain = Workload("train", 4, 64)
    whole = work.of(families.subject("tiny", plain), plain)
    again = Workload("train", 4, 64, recompute=True)
    less = work.of(families.subject("tiny", again), again)
    assert less.activations < whole.activations and less.flops > whole.flops
    parts = Workload("train", 4, 64, accumulate=2)
    both = work.of(families.subject("tiny", parts), parts)
    assert (
        both.flops == pytest.approx(whole.flops) and both.activations < whole.activations and both.units == whole.units
    )


def test_an_expert_that_no_token_visits_is_not_read() -> None:
    load = Workload("decode", batch=1, sequence=64)
    count = work.of(families.subject("mixtral-8x7b", load), load)
    assert sum(g.weight_bytes * g.count for g in count.groups) < 0.35 * count.weights


def test_wrong_requests() -> None:
    for wrong in ({"batch": -1}, {"kind": "sing"}, {"dtype": "int3"}, {"latency": 0.0}, {"batch": 3, "accumulate": 2}):
        with pytest.raises(PlanError):
            Workload(**wrong)  # type: ignore[arg-type]
    for name in ("no-such", "no.such:model", "os:path", "nowhere.json"):
        with pytest.raises(ModelError):
            families.subject(name, Workload())
    with pytest.raises(ModelError, match="positions"):
        families.subject("gpt2", Workload(sequence=4096))


def test_all_packaged_chips_are_planned() -> None:
    load = Workload("decode", batch=4, sequence=512)
    count = work.of(families.subject("gpt2", load), load)
    plan = compare.plan(count, list(chips().values()), [], Assumptions())
    assert all(r.step is not None for r in plan.rows)


@pytest.mark.parametrize("kind", ["train", "prefill"])
def test_flops_of_a_model_against_the_compiler(kind: str) -> None:
    load = Workload(kind, batch=4, sequence=128)
    subject = families.subject("tiny", load)
    count = work.of(subject, load)
    report = aot.compile(subject.model, subject.args, mode="train" if kind == "train" else "infer")
    assert report.cost.flops is not None
    assert count.flops + count.vector == pytest.approx(report.cost.flops, rel=0.08)
