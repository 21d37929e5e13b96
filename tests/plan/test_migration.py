"""Break-even and owned against rented, by hand; and how a user asks for them."""

from __future__ import annotations

import json
import pathlib
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from torch_pjrt.cli.main import main
from torch_pjrt.plan import migration
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Price, chips
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.workload import PlanError


def row(name: str, low: float, high: float, rate: float = 1e6) -> Estimate:
    """A chip with a cost for a million tokens."""
    return Estimate(chips()[name], cost=Range(low, high), rate=Range(rate, rate))


def plan(*words: str) -> Result:
    """Run the command on a small model."""
    return CliRunner().invoke(main, ["plan", "--model", "tiny", "--batch", "8", "--sequence", "64", *words])


def test_break_even_by_hand() -> None:
    cost = migration.Cost(Range(8000, 12500), None, "")
    each = migration.break_even(row("h100", 8, 12.5, rate=2e6), row("tpu-v6e", 4, 6.25), cost, 5e9)
    assert each is not None and each.verdict == migration.SAVES
    assert (each.saving_low, each.saving_mid, each.saving_high) == pytest.approx((1.75, 5, 8.5))
    assert each.units == pytest.approx(10_000 / 5 * 1e6)
    assert each.best_units == pytest.approx(8000 / 8.5 * 1e6) and each.worst_units == pytest.approx(12500 / 1.75 * 1e6)
    assert each.seconds == pytest.approx(2e9 / 2e6) and each.runs == pytest.approx(0.4)
    assert each.per_month == pytest.approx(5e-6 * 2e6 * 30 * 86400)


def test_no_break_even_inside_the_error_bar() -> None:
    cost = migration.Cost(Range(1000, 1000), None, "")
    near = migration.break_even(row("h100", 8, 12), row("tpu-v6e", 7, 11), cost, None)
    assert near is not None and near.verdict == migration.WITHIN and near.worst_units is None and near.units
    dear = migration.break_even(row("h100", 8, 12), row("tpu-v6e", 20, 30), cost, None)
    assert dear is not None and dear.verdict == migration.COSTS_MORE and dear.units is None
    assert migration.break_even(row("h100", 8, 12), Estimate(chips()["trn3"]), cost, None) is None


def test_cost_of_moving() -> None:
    names = ["breaks"] * 4 + ["silently-changes"] * 2 + ["slows"] * 10 + ["style"] * 99
    found = [SimpleNamespace(severity=s) for s in names]
    assumed = Assumptions(
        ["effort-fixed=5", "effort-breaks=0.5", "effort-silent=1", "effort-slows=0.1", "day-cost=500..1000"]
    )
    cost = migration.from_findings(found, assumed)
    assert cost.days == Range(pytest.approx(10), pytest.approx(10)) and "4 breaks" in cost.basis
    assert cost.dollars == Range(pytest.approx(5000), pytest.approx(10000))
    assert migration.stated("$25k", assumed).dollars == Range(25000, 25000)
    assert migration.stated("12,500", assumed).dollars == Range(12500, 12500)
    days = migration.stated("3d", assumed)
    assert days.days == Range(3, 3) and days.dollars == Range(1500, 3000)
    for wrong in ("much", "-3", "3 weeks", ""):
        with pytest.raises(PlanError, match="engineer-days"):
            migration.stated(wrong, assumed)


def test_owned_against_rented() -> None:
    listed = [
        Price("h100", "on-demand", 4.0),
        Price("h100", "on-demand", 9.0),
        Price("h100", "spot", 1.0),
        Price("h100", "owned", 1.5),
        Price("l4", "on-demand", 1.0),
    ]
    (held,) = migration.holdings([Estimate(chips()["h100"]), Estimate(chips()["l4"])], listed)
    assert held.owning_pays_above == {"on-demand": 0.375, "spot": 1.5}


def test_as_a_user_asks(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\nx = torch.ones(2).cuda()\n")
    words = ("--from", "h100", "--chips", "tpu-v6e,a100", "--tokens", "1e9", "--check", str(program))
    done = plan(*words, "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    moving = data["moving"]
    assert moving["from"] == "h100" and set(moving["break_even"]) == {"tpu-v6e", "a100"}  # h100 is compared unasked
    assert moving["engineer_days"]["high"] == pytest.approx(15 + 0.5 * data["migration"]["by_severity"]["breaks"])
    stated = json.loads(plan(*words, "--migration-cost", "40k", "--json").stdout)["moving"]
    assert stated["dollars"] == {"low": 40000, "mid": pytest.approx(40000), "high": 40000}
    text = " ".join(plan(*words).output.split())
    assert "leaving h100 costs" in text and "owning h100 beats on-demand: in use more than 30%" in text
    wrong = plan("--migration-cost", "40k")
    assert wrong.exit_code == 2 and "needs --from" in wrong.output
    assert plan("--from", "h10").exit_code == 2
