"""What holds for every command: help with examples, exit codes, JSON, and completion in the shells."""

from __future__ import annotations

import json
import pathlib
import shlex
import shutil
import subprocess
from typing import Any

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result

from torch_pjrt.cli import check, doctor, plan_run, port
from torch_pjrt.cli import compile as compile_
from torch_pjrt.cli.completion import SHELLS
from torch_pjrt.cli.main import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = sorted(main.commands)
MODEL = """
import torch

def make():
    return torch.nn.Linear(2, 2), (torch.zeros(1, 2),)

def wrong():
    return 1

def raises():
    raise RuntimeError("it cannot be built")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The current folder: a clean program, a tied one, a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("click.get_app_dir", lambda name: str(tmp_path / "config"))
    pathlib.Path("clean.py").write_text("import torch\n")
    pathlib.Path("tied.py").write_text("import torch\nname = torch.cuda.get_device_name()\n")
    pathlib.Path("amodel.py").write_text(MODEL)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


# -- exit codes ------------------------------------------------------------------------------------------------------

PLAN = ("plan", "--model", "tiny", "--chips", "l4")
CODES = {
    0: [
        ("check", "clean.py"),
        ("port", "clean.py"),
        ("compile", "--list"),
        ("completion", "bash"),
        PLAN,
    ],
    1: [
        ("check", "tied.py"),
        ("port", "tied.py"),
        (*PLAN, "--latency", "0.000001ms"),
    ],
    2: [
        ("check",),
        ("check", "nowhere.py"),
        ("check", "clean.py", "--select", "PJ77"),
        ("check", "clean.py", "--severity", "bad"),
        ("port",),
        ("port", "nowhere.py"),
        ("compile",),
        ("compile", "--model", "amodel:make", "--target", "abacus"),
        ("compile", "--model", "amodel:make", "--mode", "fast"),
        ("compile", "--model", "amodel:wrong"),
        ("compile", "--model", "amodel:raises"),
        ("compile", "--model", "amodel:nothing"),
        ("compile", "--model", "nowhere:make"),
        ("compile", "--model", "amodel"),
        ("compile", "--config", "nowhere.json"),
        ("completion", "tcsh"),
        ("plan",),
        ("plan", "--model", "nowhere:make"),
        (*PLAN[:3], "--chips", "abacus"),
        (*PLAN, "--batch", "-1"),
        ("doctor", "--timeout", "soon"),
        ("run",),
        ("run", "nowhere.py"),
        ("nothing",),
    ],
}


@pytest.mark.parametrize(
    ("code", "words"), [(code, words) for code, cases in CODES.items() for words in cases], ids=lambda x: str(x)[:60]
)
def test_exit_codes(code: int, words: tuple[str, ...]) -> None:
    done = call(*words)
    assert done.exit_code == code, done.output
    assert code < 2 or ("Error:" in done.output and "Traceback" not in done.output)


@pytest.mark.parametrize(
    ("module", "function", "words"),
    [
        (check, "check", ("check", "clean.py")),
        (port, "port", ("port", "clean.py")),
        (compile_, "run", ("compile", "--list")),
        (doctor, "report", ("doctor",)),
        (plan_run, "run", PLAN),
    ],
    ids=lambda x: str(getattr(x, "__name__", x))[:40],
)
def test_an_error_of_ours_is_3(
    monkeypatch: pytest.MonkeyPatch, module: Any, function: str, words: tuple[str, ...]
) -> None:
    def broken(*args: object, **kwargs: object) -> int:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(module, function, broken)
    done = call(*words)
    assert done.exit_code == 3 and "not of yours" in done.output and "broken" in done.output


@pytest.mark.parametrize("ok", [True, False])
def test_doctor_exits_by_what_it_finds(monkeypatch: pytest.MonkeyPatch, ok: bool) -> None:
    monkeypatch.setattr(doctor, "report", lambda **_: 0 if ok else 1)
    assert call("doctor").exit_code == (0 if ok else 1)


# -- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [("check", "tied.py", "--json"), ("port", "tied.py", "--json"), (*PLAN, "--json")],
    ids=lambda words: words[0],
)
def test_json_alone_is_on_standard_output(words: tuple[str, ...]) -> None:
    assert isinstance(json.loads(call(*words).stdout), dict)


def test_every_command_that_reports_has_json() -> None:
    reports = [name for name in COMMANDS if name not in ("completion", "run")]  # `run` has --report FILE
    assert all(any("--json" in option.opts for option in main.commands[name].params) for name in reports)


# -- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_parse(name: str) -> None:
    """Each example is a command line that the parser takes: no option that does not exist."""
    text = call(name, "--help").output
    examples = [line.strip() for line in text.splitlines() if line.strip().startswith(f"torch-pjrt {name}")]
    assert examples, text
    for line in examples:
        words = shlex.split(line, comments=True)[2:]
        words = words[: next((i for i, word in enumerate(words) if word in ("|", ">")), None)]
        command = main.commands[name]
        known = {opt for option in command.params for opt in (*option.opts, *option.secondary_opts)}
        if name == "run":
            words = words[: next(i for i, word in enumerate(words) if word.endswith(".py") or word == "package.train")]
        assert all(word in known for word in words if word.startswith("-")), line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert f"torch-pjrt {name}" in (ROOT / "docs" / "cli.md").read_text()
    for option in main.commands[name].params:
        assert isinstance(option, click.Argument) or option.help or isinstance(option.type, click.Choice), option.name


# -- completion ------------------------------------------------------------------------------------------------------


def completed(words: list[str], begun: str) -> set[str]:
    return {
        one.value for one in BashComplete(main, {}, "torch-pjrt", "_TORCH_PJRT_COMPLETE").get_completions(words, begun)
    }


def test_commands_are_completed() -> None:
    assert completed([], "") == set(COMMANDS)
    assert completed([], "p") == {"plan", "port"}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_completed(name: str) -> None:
    assert completed([name], "--") >= {
        opt for option in main.commands[name].params for opt in option.opts if opt[:2] == "--"
    }


@pytest.mark.parametrize(
    ("words", "begun", "some"),
    [
        (["check", "--format"], "s", {"sarif"}),
        (["check", "--explain"], "pj20", {"PJ201", "PJ205"}),
        (["check", "--select"], "PJ1,PJ20", {"PJ1,PJ203"}),
        (["compile", "--target"], "tpu", {"tpu-v5e", "tpu-v6e"}),
        (["completion"], "", set(SHELLS)),
    ],
)
def test_values_are_completed(words: list[str], begun: str, some: set[str]) -> None:
    assert some <= completed(words, begun)


def test_paths_are_left_to_the_shell() -> None:
    for name in ("check", "port"):
        (found,) = BashComplete(main, {}, "torch-pjrt", "_TORCH_PJRT_COMPLETE").get_completions([name], "cl")
        assert found.type == "file"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts_are_of_the_shell(shell: str) -> None:
    text = CliRunner().invoke(main, ["completion", shell], env={"_TORCH_PJRT_COMPLETE": None}).output
    assert "torch-pjrt" in text and f"_TORCH_PJRT_COMPLETE={shell}_complete" in text
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=text, text=True, check=False).returncode == 0
