"""Times, memory, layouts and ranks, against sums by hand on a chip of round numbers."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from torch_pjrt import aot
from torch_pjrt.plan import compare, compiled, estimate, families, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.calibration import Calibration, Entry
from torch_pjrt.plan.chips import Chip, Fact, Price, chips
from torch_pjrt.plan.fusion import Group
from torch_pjrt.plan.layout import Layout
from torch_pjrt.plan.memory import memory_of
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.work import Policy, Work
from torch_pjrt.plan.workload import ModelError, PlanError, Workload

PLAIN = [f"{name}=1" for name in ("matmul", "bandwidth", "network", "expert-load", "memory", "power")] + [
    f"{name}=0" for name in ("overlap", "overlap-tensor", "kernel", "collective", "causal")
]


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
    timed = estimate.step_time(made(), chip(), Layout(), Assumptions(PLAIN))
    assert timed is not None
    assert timed[0].low == timed[0].high == pytest.approx(0.110)
    assert timed[1]["compute"] == pytest.approx(0.1) and timed[1]["memory bandwidth"] == pytest.approx(0.01)


def test_splitting() -> None:
    assumed = Assumptions(PLAIN)
    inference = made("prefill", compute=16e9)
    data = estimate.step_time(inference, chip(), Layout(2), assumed)
    tensor = estimate.step_time(inference, chip(), Layout(1, 2), assumed)
    assert data is not None and tensor is not None
    assert data[0].low == pytest.approx(0.05 + 0.0075)  # every chip reads all weights
    assert tensor[0].low == pytest.approx(0.055 + 2 * 8e9 * 0.5 / 100e9)  # an all-reduce moves it twice


def test_training_exchanges_gradients() -> None:
    assumed = Assumptions(PLAIN)
    load = made(compute=16e9)
    data = estimate.step_time(load, chip(), Layout(2), assumed)
    fsdp = estimate.step_time(load, chip(), Layout(2, 1, 3), assumed)
    assert data is not None and fsdp is not None
    assert data[1]["interconnect"] == pytest.approx(2 * 16e9 * 0.5 / 100e9)
    assert fsdp[1]["interconnect"] == pytest.approx(3 * 16e9 * 0.5 / 100e9)


def test_a_wider_group_goes_over_the_network() -> None:
    assumed = Assumptions([*PLAIN, "between=10"])
    near = estimate.step_time(made(compute=16e9), chip(domain=8), Layout(8, 1, 3), assumed)
    far = estimate.step_time(made(compute=16e9), chip(domain=4), Layout(8, 1, 3), assumed)
    assert near is not None and far is not None and far[0].low > near[0].low
    assert far[1]["interconnect"] == pytest.approx(3 * 16e9 * 7 / 8 * (1 / 100e9 + 1 / 4 / 10e9))


def test_memory_and_the_fewest_chips() -> None:
    load = made(weights=200e9, gradients=100e9, states=100e9, compute=50e9)
    load.workload = Workload("train", batch=8, sequence=100, accumulate=2)
    load.policies = {"none": Policy(kept=80e9)}
    found = estimate.for_chip(load, chip(), Assumptions(PLAIN))
    assert found.layout is not None and found.layout.chips == 8 and found.memory is not None and found.memory.fits
    tensor = memory_of(load, chip(), Layout(1, 8), Assumptions(PLAIN))
    assert tensor.total == pytest.approx((400e9 + 80e9) / 8) and tensor.fits
    fsdp = memory_of(load, chip(), Layout(8, 1, 3), Assumptions(PLAIN))
    assert fsdp.total == pytest.approx((400e9 + 80e9) / 8 + 2 * 50e9 / 4)
    data = memory_of(load, chip(), Layout(8), Assumptions(PLAIN))
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
    kept = [whole.policies[name].kept for name in ("none", "selective", "full")]
    assert kept == sorted(kept, reverse=True) and len(set(kept)) == 3
    head, blocks = 2 * 256 * 64 * 512, whole.flops / 3 - 2 * 256 * 64 * 512
    again = {name: sum(g.flops * g.count for g in p.again) for name, p in whole.policies.items()}
    assert again["none"] == 0 < again["full"] <= blocks < blocks + head
    assert again["selective"] < again["full"]
    parts = Workload("train", 4, 64, accumulate=2)
    both = work.of(families.subject("tiny", parts), parts)
    assert both.flops == pytest.approx(whole.flops) and both.units == whole.units
    assert both.policies["none"].kept == pytest.approx(whole.policies["none"].kept / 2, rel=0.01)


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


def test_a_compiler_corrects_the_counts() -> None:
    """The CPU's compiler, asked about a chip of round numbers."""
    load = Workload("prefill", batch=4, sequence=128)
    make = lambda asked: families.subject("tiny", asked)
    count = work.of(make(load), load)
    here = dataclasses.replace(chip("round"), target="cpu")
    plain = compare.plan(count, [here], [], Assumptions(PLAIN)).rows[0]
    asked = compare.plan(
        count,
        [here],
        [],
        Assumptions(PLAIN),
        refine=lambda rows: compiled.refine(rows, make, load, count, Assumptions(PLAIN)),
    )
    row = asked.rows[0]
    assert row.compiles == "compiles" and row.compiled is not None and asked.notes
    whole = aot.compile(make(load).model, make(load).args)
    assert row.compiled.flops == pytest.approx(whole.cost.compiler_flops, rel=0.02)  # two blocks are one and one more
    assert row.compiled.bytes == pytest.approx(whole.cost.compiler_bytes, rel=0.05)
    assert row.compiled.flops_ratio == pytest.approx(1, rel=0.15)
    if row.compiled.seconds is None:
        assert row.method == compiled.COUNTS and row.step is not None and plain.step is not None
        by = row.step.mid / plain.step.mid
        assert min(row.compiled.bytes_ratio, 1) * 0.9 < by < max(row.compiled.bytes_ratio, 1) * 1.1  # type: ignore[type-var]


# Four CPU devices take a process of its own.
_SHARDED = """
import dataclasses, json
from torch_pjrt.plan import compare, compiled, estimate, families, layout, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Chip, Fact
from torch_pjrt.plan.workload import Workload
load = Workload("prefill", batch=4, sequence=128)
make = lambda asked: families.subject("tiny", asked)
count = work.of(make(load), load)
known = {"bfloat16": 1e14, "memory": 1e11, "bandwidth": 1e12, "interconnect": 1e11, "domain": 8}
facts = {name: Fact(value, "", direction="one" if name == "interconnect" else "") for name, value in known.items()}
here = Chip("here", "here", "us", "cpu", "cpu", facts)
rows = []
for tensor in (1, 4):
    refine = lambda rows: compiled.refine(rows, make, load, count, Assumptions())
    made = compare.plan(count, [here], [], Assumptions(), layout={"tensor": tensor}, refine=refine)
    rows.append({**dataclasses.asdict(made.rows[0].compiled), "method": made.rows[0].method, "notes": made.notes})
too_many = estimate.Estimate(here, layout.Layout(tensor=8))
print(json.dumps([*rows, compiled._sharded(too_many)]))
"""


def test_a_tensor_parallel_layout_is_compiled_sharded() -> None:
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", _SHARDED], capture_output=True, text=True, env=flags)
    assert done.returncode == 0, done.stderr
    one, four, chips_of_eight = json.loads(done.stdout.splitlines()[-1])
    assert (one["chips"], four["chips"]) == (1, 4) and not one["collectives"] and four["collectives"]["all-reduce"]
    assert four["verdict"] == "compiles" and four["method"] == compiled.COUNTS
    assert four["arguments"] < 0.4 * one["arguments"] and four["flops"] < 0.7 * one["flops"]
    assert four["flops_ratio"] == pytest.approx(4 * four["flops"] / one["flops"] * one["flops_ratio"])
    assert any("sharded over 4 chips" in note for note in four["notes"])
    assert chips_of_eight == 1  # there are four devices to compile for


def test_a_compiler_that_gives_a_time() -> None:
    load = made("prefill")
    row = estimate.for_chip(load, chip(), Assumptions(PLAIN))
    row.compiled = estimate.Compiled("compiles")
    ours = compiled.Figures(10e12, 11e9)
    said = compiled.Figures(20e12, 11e9, seconds=0.3)
    compiled._use(row, said, ours, load, Assumptions([*PLAIN, "compiler-time=0.9..1.5"]))
    assert row.method == compiled.ESTIMATE and row.step == Range(pytest.approx(0.27), pytest.approx(0.45))
    spread = estimate.for_chip(load, chip(), Assumptions(PLAIN), fixed={"tensor": 2})
    spread.compiled = estimate.Compiled("compiles")
    compiled._use(spread, said, ours, load, Assumptions(PLAIN))
    assert spread.method == compiled.COUNTS and spread.step is not None  # what was compiled is not what each chip runs
    assert spread.step.mid == pytest.approx(0.1 + 0.005 + 2 * 8e9 * 0.5 / 100e9)  # twice the operations, over two chips
    one, two = compiled.Figures(3.0, 5.0, None), compiled.Figures(4.0, 7.0, 1.0)
    assert one.with_blocks(two, 10) == compiled.Figures(12.0, 23.0, None)
    assert two.with_blocks(one, 10) == compiled.Figures()  # a second block cannot cost less than nothing
