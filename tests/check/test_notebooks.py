"""Notebooks in `torch-pjrt check` and `port`: cells are one program, magic stays, no other byte of the file changes."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from click.testing import CliRunner

from torch_pjrt.check import check_text
from torch_pjrt.cli.main import main

DEFINITION = 'DEVICE_TYPE = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"'


def code(*lines: str) -> dict[str, Any]:
    """A code cell as nbformat writes it: a list of lines with their ends."""
    return {"cell_type": "code", "metadata": {}, "outputs": [], "source": "\n".join(lines).splitlines(keepends=True)}


def notebook(*cells: dict[str, Any], **metadata: Any) -> str:
    """The text of a notebook file."""
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def found(text: str) -> list[tuple[int | None, int, int, str]]:
    return [(one.cell, one.line, one.column, one.rule.id) for one in check_text(text, "notes.ipynb")]


def sources(text: str) -> list[str]:
    return ["".join(one["source"]) for one in json.loads(text)["cells"] if one["cell_type"] == "code"]


def ported(text: str) -> str:
    """The new text, after the checks that hold for every notebook."""
    pytest.importorskip("libcst")
    from torch_pjrt.port import port_text

    once = port_text(text, "notes.ipynb")
    twice = port_text(once.text, "notes.ipynb")
    assert (twice.text, twice.changes) == (once.text, 0)
    return once.text


def test_magic_is_not_in_the_way() -> None:
    cells = (
        code(
            "files = !ls", "for f in files:", "    !rm $f", "    x = torch.ones(2).cuda()", "torch.cuda.is_available?"
        ),
        code("%time y = x.cuda()", "%timeit -n 3 x.cuda()", "%time z = f(", "    x.cuda())", "%env A='\\n"),
        code("%%capture out", "z = x.cuda()"),
        code("%%bash", "x.cuda()"),
        code("s = '''", "%d", "'''", "torch.zeros(1, device='cuda')"),
    )
    assert found(notebook(code("import torch"), *cells)) == [
        (2, 4, 9, "PJ101"),
        (3, 1, 11, "PJ101"),
        (3, 2, 14, "PJ101"),
        (3, 4, 5, "PJ101"),
        (4, 2, 5, "PJ101"),
        (6, 4, 23, "PJ102"),
    ]


def test_installs_go_on_over_lines() -> None:
    text = notebook(code("!pip install numpy \\", "    xformers \\", "    flash-attn", "import torch"))
    assert found(text) == [(1, 1, 1, "PJ602"), (1, 1, 1, "PJ602")]


def test_a_cell_that_writes_a_program_is_one() -> None:
    text = notebook(code("%%writefile train.py", "import torch", "torch.cuda.synchronize()"), code("torch = 1"))
    assert found(text) == [(1, 3, 1, "PJ401")]


def test_other_languages_are_left_alone() -> None:
    assert found(notebook(code("x = torch.ones(2).cuda()"), kernelspec={"language": "julia"})) == []
    assert found(notebook(code("x = torch.ones(2).cuda()"), language_info={"name": "python"})) == [(1, 1, 5, "PJ101")]


def test_findings_are_hidden_in_cells() -> None:
    text = notebook(
        code("import torch", "x = torch.ones(2).cuda()  # pjrt: ignore[PJ101]"), code("1  # pjrt: ignore[PJ103]")
    )
    assert found(text) == [(2, 1, 1, "PJ002")]
    assert ported(text) == text


# An odd layout, escapes of both kinds, a source that is one text, a key twice as deep: all of it must stay.
ODD = r"""{ "nbformat":4,
  "cells" :[
{"cell_type": "markdown","source":"device = 'cuda' \u00e9"},
  {"source"  : [ "import torch\n",  "s = '\u00e9'\n" ,"x = torch.ones(2).cuda() # \u00e9" ], "cell_type":"code" ,
   "outputs":[{"text":["x.cuda()\n"], "source": ["n = torch.cuda.device_count()"]}], "execution_count" : 7},
	{"cell_type":"code", "source" : "%time n = torch.cuda.device_count()\n%matplotlib inline"},
 {"cell_type":"code","source":[]}
] ,"metadata":{"widgets":{"a":1.50}}
}"""


def test_nothing_but_the_cells_changes() -> None:
    first, last = ('"import torch\\n"', r'"x = torch.ones(2).cuda() # \u00e9"')
    want = ODD.replace(
        f"[ {first},  \"s = '\\u00e9'\\n\" ,{last} ]",
        "[ "
        + ",  ".join(
            (
                first,
                json.dumps("\n"),
                json.dumps(DEFINITION + "\n"),
                json.dumps("\n"),
                "\"s = '\\u00e9'\\n\"",
                r'"x = torch.ones(2).to(DEVICE_TYPE) # \u00e9"',
            )
        )
        + " ]",
    ).replace('"%time n = torch.cuda.device_count()', '"%time n = torch.accelerator.device_count()')
    assert ported(ODD) == want != ODD


def test_text_that_is_not_ascii_stays_readable() -> None:
    text = notebook(code("import torch", "n = torch.cuda.device_count()  # é")).replace("\\u00e9", "é")
    assert ported(text) == text.replace("torch.cuda.", "torch.accelerator.")


def test_cells_are_ported_as_one_program() -> None:
    text = notebook(
        code("!pip install torch \\", "   numpy", "%matplotlib inline"),
        code("import torch as t"),
        code("from torch.cuda import amp"),
        code("t.manual_seed(0)", "t.cuda.manual_seed_all(0)"),
        code("with amp.autocast():", "    !ls", "    y = t.ones(2).cuda()"),
    )
    definition = DEFINITION.replace("torch.", "t.")
    assert sources(ported(text)) == [
        "!pip install torch \\\n   numpy\n%matplotlib inline",
        "import torch as t",
        f"from torch.cuda import amp\n\n{definition}",
        "t.manual_seed(0)",
        "with t.amp.autocast(DEVICE_TYPE):\n    !ls\n    y = t.ones(2).to(DEVICE_TYPE)",
    ]


def test_torch_is_imported_where_only_its_parts_were() -> None:
    text = ported(notebook(code(""), code("from torch import nn"), code("model = nn.Linear(1, 1).cuda()")))
    assert sources(text)[:2] == ["", f"import torch\nfrom torch import nn\n\n{DEFINITION}"]


def test_what_is_no_notebook_stays() -> None:
    pytest.importorskip("libcst")
    from torch_pjrt.port import port_text

    for text in ("{}", "no JSON", "[1]", '{"cells": [1, {"cell_type": "code"}]}'):
        assert port_text(text, "notes.ipynb").text == text


def test_the_command_shows_each_cell_and_writes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("libcst")
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path("notes.ipynb")
    path.write_text(notebook(code("import torch"), code("# é", "n = torch.cuda.device_count()")), encoding="utf-8")
    before = path.read_bytes()
    shown = CliRunner().invoke(main, ["port", "notes.ipynb"])
    assert shown.exit_code == 0 and "+++ b/notes.ipynb cell 2\n" in shown.output and "cell 1" not in shown.output
    assert "+n = torch.accelerator.device_count()" in shown.output and path.read_bytes() == before
    assert CliRunner().invoke(main, ["port", ".", "--write"]).exit_code == 0
    assert path.read_bytes() == before.replace(b"torch.cuda.", b"torch.accelerator.")
    assert CliRunner().invoke(main, ["check", "."]).exit_code == 0
