"""The pages say what the code has."""

from __future__ import annotations

import pathlib
import re
import shlex

import pytest
from click.testing import CliRunner

from torch_pjrt import errors
from torch_pjrt.cli.main import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "AGENTS.md", *(ROOT / "docs").glob("*.md")])


def test_every_error_and_warning_is_documented() -> None:
    headings = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE))
    assert headings == set(errors.__all__) - {"PjrtError", "PjrtWarning"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


# -- the command line --------------------------------------------------------------------------------------------------

COMMAND_LINE = re.compile(r"^(?:\$ |- run: )?(torch-pjrt [a-z]\S.*)$", re.MULTILINE)


def command_lines(page: pathlib.Path) -> list[str]:
    """The examples of a page: lines of its code blocks that call torch-pjrt."""
    blocks = re.findall(
        r"^```(?:console|bash|yaml)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return [line for block in blocks for line in COMMAND_LINE.findall(block)]


EXAMPLES = [(page.name, line) for page in PAGES for line in command_lines(page)]


def test_there_are_examples_of_every_command() -> None:
    assert {line.split()[1] for _, line in EXAMPLES} == set(main.commands)


@pytest.mark.parametrize(("page", "line"), EXAMPLES, ids=lambda text: text[:50])
def test_examples_on_the_command_line_are_ones_that_the_parser_takes(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    words = words[: next((i for i, word in enumerate(words) if word in ("|", "||", ">", "&&")), None)]
    command = main.commands[words[1]]
    context = command.make_context(words[1], words[2:], resilient_parsing=True)
    assert context is not None
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    mine = words[2:]
    if words[1] == "run":  # what follows the script is the script's
        mine = mine[: next(i for i, word in enumerate(mine) if word.endswith(".py") or "." in word)]
    assert all(word.split("=")[0] in known for word in mine if word.startswith("-")), line


def test_the_example_in_python_of_check_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(
        r"```python\n(from torch_pjrt.check import.*?)```", (ROOT / "docs" / "check.md").read_text(), re.DOTALL
    )
    exec(compile(block, "check.md", "exec"), {})
    assert capsys.readouterr().out == "train.py:2 PJ101 breaks torch.ones(2).cuda()\n"


def test_the_first_session_of_check_says_what_the_page_says(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line of findings that the page shows, of a program with those two habits at those lines."""
    text = (ROOT / "docs" / "check.md").read_text()
    session = text.partition("$ torch-pjrt check train.py\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    head = '"""Trains."""\n\nimport torch\n\n\n'
    gate = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n\n'
    pathlib.Path("train.py").write_text(head + gate + "scaler = torch.amp.GradScaler()\n")
    done = CliRunner().invoke(main, ["check", "train.py"])
    assert done.output.strip() == session.strip()


def test_the_index_links_every_page() -> None:
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#:]+)\)", index))
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if "data" not in path.parts}
    assert pages - {"index.md"} <= linked


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "docs" / "findings" / "index.md"], ids=lambda page: page.parent.name + page.name
)
def test_anchors_exist(page: pathlib.Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*\.md)?#([^)]+)\)", page.read_text(encoding="utf-8")):
        text = (page.parent / target if target else page).read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-")
            for one in re.findall(r"^#+ (.*)$", text, re.M)
        }
        assert anchor in headings or f'<a id="{anchor}">' in text, (target, anchor)
