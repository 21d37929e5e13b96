"""`torch-pjrt check` over a corpus of small programs: exactly the findings that their comments expect, line by line."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from torch_pjrt.check import RULES, Severity, check_paths, check_text
from torch_pjrt.check.page import examples_of, findings_page

CORPUS = pathlib.Path(__file__).parent / "corpus"
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = sorted(path for path in CORPUS.iterdir() if path.is_file())


def expected(text: str) -> list[tuple[int, str, str]]:
    """(line, rule, severity) from `# expect: PJ101, PJ110/silently-changes`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.search(r"expect: (.*)$", line)
        for one in match[1].split(",") if match else ():
            id_, _, severity = one.strip().partition("/")
            found.append((number, id_, severity or str(RULES[id_].severity)))
    return sorted(found)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_findings_are_exactly_these(path: pathlib.Path) -> None:
    text = path.read_text()
    found = [(one.line, one.rule.id, str(one.severity)) for one in check_text(text, path.name)]
    assert sorted(found) == expected(text)


STATIC = [id_ for id_ in RULES if not id_.startswith("PJ9")]


@pytest.mark.parametrize("id_", STATIC)
def test_every_rule_is_triggered_and_stays_quiet_on_a_look_alike(id_: str) -> None:
    found, quiet = examples_of(PROGRAMS)[id_]
    assert found and quiet


def test_lines_that_stay_quiet_are_quiet() -> None:
    for path in PROGRAMS:
        text = path.read_text()
        found = {(line, id_) for line, id_, _ in expected(text)}
        for number, line in enumerate(text.splitlines(), 1):
            match = re.search(r"quiet: (.*)$", line)
            for id_ in match[1].split(",") if match else ():
                assert id_.strip() in RULES and (number, id_.strip()) not in found, path.name


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 60


def test_every_rule_says_what_happens_and_what_to_do() -> None:
    for one in RULES.values():
        assert one.consequence.endswith(".") and one.fix.endswith(".")
    assert len({one.name for one in RULES.values()}) == len(RULES)


@pytest.mark.parametrize("id_", RULES)
def test_every_rule_has_its_place_in_the_docs(id_: str) -> None:
    path, _, anchor = RULES[id_].doc.partition("#")
    page = (ROOT / path).read_text()
    assert page.count(f'<a id="{anchor}"></a>\n### {id_} {RULES[id_].name}\n') == 1
    entry = page.partition(f'<a id="{anchor}"></a>')[2].partition("<a id=")[0]
    assert RULES[id_].fix in entry and (id_.startswith("PJ9") or "\nFound:\n" in entry and "\nNot found:\n" in entry)


def test_the_page_of_findings_is_up_to_date() -> None:
    assert (ROOT / "docs" / "findings" / "index.md").read_text() == findings_page(examples_of(PROGRAMS))


def test_places_are_exact_behind_other_alphabets() -> None:
    (one,) = check_text('import torch\ns = "наука"; x = torch.ones(2, device="cuda")\n')
    assert (one.line, one.column, one.end_column) == (2, 39, 45)


def test_notebooks_are_one_program() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["device = 'cuda'"]},
        {"cell_type": "code", "source": ["%pip install flash-attn\n", "import torch as t\n"]},
        {"cell_type": "code", "source": ["%%bash\n", "nvidia-smi\n"]},
        {"cell_type": "code", "source": "%time x = 1\nx = t.ones(2).cuda()\n!ls"},
    ]
    text = json.dumps({"cells": cells, "nbformat": 4})
    found = [(one.cell, one.line, one.rule.id) for one in check_text(text, "notes.ipynb")]
    assert found == [(1, 1, "PJ602"), (3, 2, "PJ101")]
    assert [one.rule.id for one in check_text("{}", "notes.ipynb")] == ["PJ001"]


def test_a_folder_is_walked_without_what_is_installed(tmp_path: pathlib.Path) -> None:
    for folder in ("src", ".venv", "build", "node_modules"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("import torch\ntorch.cuda.synchronize()\n")
    (tmp_path / "requirements-dev.txt").write_text("xformers\n")
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe\x00 torch")
    found = [(pathlib.Path(one.path).name, one.rule.id) for one in check_paths([str(tmp_path)])]
    assert found == [("bad.py", "PJ001"), ("requirements-dev.txt", "PJ602"), ("a.py", "PJ401")]


def test_an_installed_package_is_found_by_name() -> None:
    assert check_paths(["click"]) == []


def test_severities_are_ordered() -> None:
    assert [one.rank for one in Severity] == [0, 1, 2, 3]
    assert Severity.BREAKS.rank == 0
