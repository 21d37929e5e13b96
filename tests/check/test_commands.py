"""The commands `check` and `port`: exit codes, formats, baseline, bad input, and a run on the device."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from click.testing import CliRunner, Result

from torch_pjrt.check import baseline
from torch_pjrt.cli.main import main

TIED = "import torch\nx = torch.ones(2).cuda()\nscaler = torch.amp.GradScaler()\n"


@pytest.fixture
def program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A program with two findings, in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path("train.py")
    path.write_text(TIED)
    return path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_terminal(program: pathlib.Path) -> None:
    done = call("check", "train.py")
    assert done.exit_code == 1
    assert re.search(r"2\s+PJ101 breaks", done.output) and "PJ203 silently-changes" in done.output
    assert "2 findings (1 breaks, 1 silently-changes), 1 file checked" in done.output


def test_clean(program: pathlib.Path) -> None:
    program.write_text("import torch\n")
    done = call("check", "train.py")
    assert (done.exit_code, "no findings" in done.output) == (0, True)


def test_json(program: pathlib.Path) -> None:
    table = json.loads(call("check", "train.py", "--json").output)
    assert table["summary"]["findings"] == 2 and table["summary"]["breaks"] == 1
    first = table["findings"][0]
    assert (first["id"], first["line"], first["column"], first["end_column"]) == ("PJ101", 2, 5, 25)
    assert first["consequence"] and first["fix"] and first["doc"].endswith("#pj101")


def test_sarif(program: pathlib.Path) -> None:
    log = json.loads(call("check", "train.py", "--format", "sarif").output)
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert [one["id"] for one in run["tool"]["driver"]["rules"]] == ["PJ101", "PJ203"]
    result = run["results"][0]
    where = result["locations"][0]["physicalLocation"]
    assert (result["level"], result["ruleIndex"], where["artifactLocation"]["uri"]) == ("error", 0, "train.py")
    assert where["region"] == {"startLine": 2, "startColumn": 5, "endLine": 2, "endColumn": 25}


def test_severity_and_select(program: pathlib.Path) -> None:
    assert json.loads(call("check", ".", "--json", "--severity", "breaks").output)["summary"]["findings"] == 1
    assert json.loads(call("check", ".", "--json", "--select", "PJ2").output)["summary"]["findings"] == 1
    assert call("check", ".", "--exclude", "train.py").exit_code == 0


def test_baseline_hides_what_is_known_and_only_that(program: pathlib.Path) -> None:
    assert call("check", "train.py", "--write-baseline", "known.json").exit_code == 0
    assert call("check", "train.py", "--baseline", "known.json").exit_code == 0
    program.write_text("# moved\n" + TIED + "y = torch.zeros(2).cuda()\n")
    done = call("check", "train.py", "--baseline", "known.json", "--json")
    assert [one["line"] for one in json.loads(done.output)["findings"]] == [5]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nowhere.py"], "no such file or folder"),
        (["check", "train.py", "--format", "xml"], "xml"),
        (["check", "train.py", "--select", "PJ77"], "PJ77"),
        (["check", "train.py", "--baseline", "train.py"], "not a baseline"),
        (["check", "train.py", "--baseline", "none.json"], "No such file"),
        (["check", "train.py", "--run", "nowhere.py"], "no such file"),
        (["check"], "Missing argument"),
        (["port", "nowhere.py"], "no such file or folder"),
    ],
)
def test_bad_input_is_exit_code_2(program: pathlib.Path, arguments: list[str], says: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2 and says in done.output


def test_an_error_of_the_program_is_exit_code_3(program: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(baseline, "read", broken)
    done = call("check", "train.py", "--baseline", "x.json")
    assert done.exit_code == 3 and "not of yours" in done.output


def test_port_shows_first_and_writes_when_asked(program: pathlib.Path) -> None:
    pytest.importorskip("libcst")
    done = call("port", "train.py")
    assert done.exit_code == 0 and "+x = torch.ones(2).to(DEVICE_TYPE)" in done.output
    assert program.read_text() == TIED
    assert call("port", ".", "--write").exit_code == 0
    assert call("check", ".").exit_code == 0
    assert json.loads(call("port", ".", "--json").output)["changed"] == {}


def test_port_lists_what_is_left(program: pathlib.Path) -> None:
    pytest.importorskip("libcst")
    program.write_text("import torch\nname = torch.cuda.get_device_name()\n")
    done = call("port", "train.py")
    assert done.exit_code == 1 and "PJ110" in done.output


def test_one_file_does_not_keep_the_others_from_being_ported(
    program: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("libcst")
    from torch_pjrt.port import rewrite

    add = rewrite.add_header

    def breaks(module: object, needs: object) -> object:
        if "broken" in module.code:  # type: ignore[attr-defined]
            raise RuntimeError("no header")
        return add(module, needs)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "add_header", breaks)
    bad = pathlib.Path("a.py")
    bad.write_text(TIED + "broken = 1\n")
    done = call("port", ".", "--write")
    assert done.exit_code == 3 and "a.py: RuntimeError: no header" in done.output
    assert bad.read_text() == TIED + "broken = 1\n" and "DEVICE_TYPE" in program.read_text()
