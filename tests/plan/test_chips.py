"""Every figure has its source and date, unknown is unknown, and a mistake in a price list is named."""

from __future__ import annotations

import pathlib

import pytest

from torch_pjrt.pjrt import targets
from torch_pjrt.plan import chips
from torch_pjrt.plan.assumptions import TABLE, Assumptions
from torch_pjrt.plan.workload import PlanError


@pytest.mark.parametrize("chip", chips.chips().values(), ids=lambda c: c.name)
def test_facts_have_sources(chip: chips.Chip) -> None:
    for name, fact in chip.facts.items():
        if fact.value is None:
            assert fact.text == "unknown" and fact.note, name
        else:
            assert fact.value > 0 and fact.date and fact.source in chips.sources(), name
    assert {"bfloat16", "float8", "memory", "bandwidth", "interconnect", "domain", "power"} <= set(chip.facts)
    assert chip.target in ("", *targets.targets())


def test_figures_of_one_chip() -> None:
    v5p = chips.chips()["tpu-v5p"]
    assert v5p.fact("memory").value == 95 * 2**30
    assert v5p.fact("interconnect").one_way == 600e9
    assert chips.chips()["h100"].fact("interconnect").one_way == 450e9
    assert chips.chips()["trn3"].fact("domain").value is None
    assert chips.chips()["tpu-v6e"].fact("power").value is None


def test_prices_are_dated() -> None:
    listed = chips.prices()
    assert len(listed) > 25
    assert all(p.source in chips.sources() and p.date for p in listed)
    assert chips.price_of("trn3", "on-demand", listed) is None
    best = chips.price_of("h100", "on-demand", listed)
    assert best is not None and best.per_hour == 4.326
    owned = chips.price_of("h100", "owned", listed)
    assert owned is not None and owned.per_hour == 1.30


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[price]]\nchip = "h10"\nper_hour = 1', "did you mean 'h100'"),
        ('[[price]]\nchip = "h100"\nper_hor = 1', "did you mean 'per_hour'"),
        ('[[price]]\nchip = "h100"', "per_hour is missing"),
        ('[[price]]\nchip = "h100"\nper_hour = "2"', "a number of dollars"),
        ('[[price]]\nchip = "h100"\nper_hour = -2', "a number of dollars"),
        ('[[price]]\nchip = "h100"\nper_hour = 2\nownership = "spott"', "did you mean 'spot'"),
        ('[[prices]]\nchip = "h100"', "'prices' at the top"),
        ("[[price]\n", "cannot read"),
    ],
)
def test_a_wrong_price_list(tmp_path: pathlib.Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(PlanError, match=says):
        chips.prices(path)


def test_a_mistake_is_found_by_its_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('# ours\n[[price]]\nchip = "h100"\nper_hour = 2\n\n[[price]]\nchip = "b200"\nper_hourr = 3\n')
    with pytest.raises(PlanError, match="line 8: there is no key 'per_hourr'; did you mean 'per_hour'"):
        chips.prices(path)
    path.write_text('[[price]]\nper_hour = 2\nchip = "tpu-v6"\n')
    with pytest.raises(PlanError, match="line 3: there is no chip 'tpu-v6'; did you mean 'tpu-v6e'"):
        chips.prices(path)
    listed = tmp_path / "mine.json"
    listed.write_text('{"price": [{"chip": "h100", "per_hour": 2}, {"chip": "h10", "per_hour": 2}]}')
    with pytest.raises(PlanError, match="price 2: there is no chip 'h10'"):
        chips.prices(listed)


def test_a_price_list_as_json(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"price": [{"chip": "h100", "per_hour": 2, "ownership": "reserved", "date": "2026-01-01"}]}')
    assert chips.prices(path) == [chips.Price("h100", "reserved", 2.0, date="2026-01-01")]


def test_names_of_chips() -> None:
    assert len(chips.chosen(None)) == len(chips.chips()) >= 18
    assert [c.name for c in chips.chosen("H100, tpu-v6e,h100")] == ["h100", "tpu-v6e"]
    with pytest.raises(PlanError, match="did you mean 'tpu-v6e'"):
        chips.chosen("tpu-v6")


def test_assumptions_are_changed_by_name() -> None:
    assumed = Assumptions(["matmul=0.5", "kernel=1..10"])
    assert assumed.low("matmul") == assumed.high("matmul") == 0.5
    assert (assumed.low("kernel"), assumed.high("kernel")) == (10, 1)
    assert all(a.meaning and a.basis for a in TABLE)
    for wrong in ("matmull=1", "matmul", "matmul=x", "bandwidth=0", "matmul=-1..2"):
        with pytest.raises(PlanError):
            Assumptions([wrong])
