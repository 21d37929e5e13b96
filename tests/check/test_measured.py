"""`torch-pjrt check --run`: programs that really do it, and the measured finding of each rule at their own lines."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from torch_pjrt.check import RULES
from torch_pjrt.check.measured import findings_of_run
from torch_pjrt.cli.main import main

# Each line that must be found ends in `# run: RULE`, with the number of times where it is sure.
TRAINING = """
import torch

torch.library.define("corpus::halve", "(Tensor x) -> Tensor")


@torch.library.impl("corpus::halve", "cpu")
def halve(x):
    return x / 2


device = "cuda" if torch.cuda.is_available() else "cpu"  # run: PJ906*1
model = torch.nn.Linear(3, 1).to(device)  # run: PJ906
for n in range(1, 8):
    x = torch.ones(n, 3, device=torch.device(device))  # run: PJ906*7, PJ902
    loss = model(x).square().sum()
    value = loss.item()  # run: PJ903*7
    half = torch.ops.corpus.halve(loss)  # run: PJ901*7
wide = torch.ones(3, device=x.device, dtype=torch.float64)  # run: PJ907
waves = wide.to(torch.complex128)  # run: PJ907
print(waves.sum())  # run: PJ903*1, PJ907
raise SystemError("the end")  # run: PJ905
"""
DTYPE = """
import torch

x = torch.ones(2, device="cuda")  # run: PJ906*1
y = x.to(torch.complex32)  # run: PJ904
"""
CLEAN = """
import torch

device = torch.accelerator.current_accelerator()
model = torch.nn.Linear(3, 1).to(device)
total = torch.zeros((), device=device)
for _ in range(6):
    total += model(torch.ones(4, 3, device=device)).sum()
assert device.type == "pjrt"
"""


def measured(text: str, folder: pathlib.Path, command: str = "train.py") -> list[dict[str, Any]]:
    """The measured findings of a program."""
    (folder / "train.py").write_text(text)
    done = CliRunner().invoke(main, ["check", "train.py", "--run", command, "--json", "--select", "PJ9"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)["findings"]


def expected(text: str) -> dict[tuple[int, str], int | None]:
    """(line, rule) and how often."""
    found: dict[tuple[int, str], int | None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.partition("# run: ")[2].split(","):
            id_, _, times = word.strip().partition("*")
            if id_:
                found[number, id_] = int(times) if times else None
    return found


@pytest.fixture(autouse=True)
def apart(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", [TRAINING, DTYPE], ids=["training", "dtype"])
def test_a_program_is_told_what_it_did_line_by_line(text: str, tmp_path: pathlib.Path) -> None:
    found = measured(text, tmp_path, f"X=1 {sys.executable} -u train.py --epochs 1")
    assert {one["path"] for one in found} == {"train.py"}
    want = expected(text)
    assert {(one["line"], one["id"]) for one in found} == set(want)
    for one in found:
        assert want[one["line"], one["id"]] in (None, one.get("times")), one
    lines = text.splitlines()
    assert all(one["text"] == lines[one["line"] - 1].strip() for one in found)
    said = {one["id"]: one["what"] for one in found}
    if text is DTYPE:
        assert "complex32" in said["PJ904"]
    else:  # the op, the error, the cause and the dtype are named
        assert said["PJ901"] == "corpus::halve.default" and said["PJ905"] == "SystemError: the end"
        assert "new shape or dtype" in said["PJ902"] and "float32[7, 3]" in said["PJ902"] and ".py" not in said["PJ902"]
        assert said["PJ907"] in ("float64", "complex128")


@pytest.mark.slow
def test_a_clean_program_has_no_measured_finding(tmp_path: pathlib.Path) -> None:
    assert measured(CLEAN, tmp_path) == []


def test_a_process_that_dies_is_a_finding(tmp_path: pathlib.Path) -> None:
    (found,) = measured("import os\nos._exit(7)\n", tmp_path)
    assert (found["id"], found["what"]) == ("PJ905", "the process ended with exit code 7 and left no report")


def test_every_measured_rule_has_a_program_that_does_it() -> None:
    seen = {id_ for text in (TRAINING, DTYPE) for _, id_ in expected(text)}
    assert seen == {id_ for id_ in RULES if id_.startswith("PJ9")}


@pytest.mark.parametrize("command", ["", "python", "python -c 'x'", "nowhere.py", "python -m"])
def test_what_cannot_be_run_is_a_wrong_command_line(command: str) -> None:
    pathlib.Path("train.py").write_text("import torch\n")
    assert CliRunner().invoke(main, ["check", "train.py", "--run", command]).exit_code == 2


def test_lines_of_any_spelling_are_found() -> None:
    report = {
        "stats": {
            "host_reads": {"C:\\my code\\a b.py:3 in f": 5, "outside Python": 9},
            "fallback_lines": {"aten::x at /nowhere/a.py:4 in <module>": 2, "aten::y at None": 1},
        },
        "causes": ["first time: 1 ops (x) at a.py:1 in f"] * 9 + ["other constants: 2 ops (x) at a.py:7 in f: why"] * 3,
    }
    found = {(one.rule.id, one.path, one.line, one.times) for one in findings_of_run(report, "s.py")}
    assert found == {
        ("PJ903", "C:\\my code\\a b.py", 3, 5),
        ("PJ903", "s.py", 1, 9),
        ("PJ901", "/nowhere/a.py", 4, 2),
        ("PJ901", "s.py", 1, 1),
        ("PJ902", "a.py", 7, 3),
    }
