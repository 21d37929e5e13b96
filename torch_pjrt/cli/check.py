"""`torch-pjrt check PATH...`: findings on the terminal, as JSON, SARIF or HTML; with `--run`, measured ones too."""

from __future__ import annotations

__all__ = ["check", "explain"]

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from torch_pjrt.check import (
    RULES,
    Finding,
    Severity,
    baseline,
    files,
    measured,
    report_html,
    report_json,
    report_sarif,
    report_text,
)
from torch_pjrt.check.explain import explanation
from torch_pjrt.config import child_environment

FOUND, USAGE, INTERNAL = 1, 2, 3


def check(
    paths: Sequence[str],
    *,
    form: str,
    output: str | None,
    least: str,
    select: str,
    exclude: Sequence[str],
    known: str | None,
    new_baseline: str | None,
    command: str | None,
) -> int:
    """Check, report, and give the exit code."""
    try:
        wanted = files.collect(paths, exclude)
        hidden = baseline.read(pathlib.Path(known)) if known else None
        ids = _selection(select)
    except (files.PathError, baseline.BaselineError) as error:
        raise click.UsageError(str(error)) from error
    if command is not None:
        _program(command)  # before any work is done, whether it can be run
    findings = _examine(wanted)
    if command is not None:
        findings = sorted(findings + _measure(command), key=lambda one: one.order)
    ranks = Severity(least).rank
    findings = [one for one in findings if one.severity.rank <= ranks and (not ids or one.rule.id.startswith(ids))]
    if new_baseline:
        number = baseline.write(findings, pathlib.Path(new_baseline))
        click.echo(f"wrote {new_baseline}: {number} findings are known from now on", err=True)
        return 0
    if hidden is not None:
        findings = baseline.subtract(findings, hidden)
    _report(findings, len(wanted), form, output)
    return FOUND if findings else 0


def explain(id_: str) -> int:
    """Print what the documentation says of a rule."""
    found = RULES.get(id_.strip().upper())
    if found is None:
        raise click.UsageError(f"--explain {id_}: there is no such rule; they are {min(RULES)} to {max(RULES)}")
    console = Console(highlight=False)
    console.print(Markdown(explanation(found)))
    return 0


def _selection(text: str) -> tuple[str, ...]:
    ids = tuple(one.strip().upper() for one in text.split(",") if one.strip())
    for one in ids:
        if not any(id_.startswith(one) for id_ in RULES):
            raise click.UsageError(
                f"--select {one}: no rule has an id that begins so; they are {min(RULES)} to {max(RULES)}"
            )
    return ids


def _examine(wanted: Sequence[pathlib.Path]) -> list[Finding]:
    console = Console(stderr=True)
    found: list[Finding] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal or len(wanted) < 20) as progress:
        task = progress.add_task("checking", total=len(wanted))
        for path in wanted:
            found += files.check_file(path)
            progress.advance(task)
    return sorted(found, key=lambda one: one.order)


def _measure(command: str) -> list[Finding]:
    """Run a program under `torch-pjrt run` and read its report. What it prints goes to stderr.

    The disk cache is off: a program that an earlier run compiled would hide that lines compile again and again.
    """
    words, environment, script = _program(command)
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        start = [sys.executable, "-m", "torch_pjrt.cli.main", "run", "--quiet", "--report", str(report)]
        done = subprocess.run([*start, *words], stdout=2, env=environment, check=False)
        if not report.exists():
            return [measured.no_report(script, done.returncode)]
        return sorted(measured.findings_of_run(json.loads(report.read_text()), script), key=lambda one: one.order)


def _program(command: str) -> tuple[list[str], dict[str, str], str]:
    """`NAME=VALUE python -u train.py --epochs 1` as words for `torch-pjrt run`, the environment, and the script."""
    words = shlex.split(command)
    environment = child_environment({"TORCH_PJRT_CACHE_DIR": "off"})
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if words and os.path.basename(words[0]).startswith("python"):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            if words[0] == "-c":
                raise click.UsageError("--run takes a file or -m MODULE, not -c")
            words = words[1:]
    if not words or words == ["-m"]:
        raise click.UsageError("--run needs a program, as in --run 'train.py --epochs 1'")
    script = words[1] if words[0] == "-m" else words[0]
    if words[0] != "-m" and not os.path.isfile(script):
        raise click.UsageError(f"--run {script}: no such file")
    return words, environment, script


def _report(findings: Sequence[Finding], num_files: int, form: str, output: str | None) -> None:
    if form == "text":
        if output is None:
            report_text.show(findings, num_files)
        else:
            with open(output, "w", encoding="utf-8") as file:
                report_text.show(findings, num_files, Console(file=file, highlight=False, soft_wrap=True))
        return
    texts = {
        "json": lambda: report_json.as_json(findings, num_files),
        "sarif": lambda: report_sarif.as_sarif(findings),
        "html": lambda: report_html.as_html(findings, num_files),
    }
    if output is None:
        click.echo(texts[form]())
    else:
        pathlib.Path(output).write_text(texts[form]() + "\n", encoding="utf-8")
        click.echo(f"wrote {output}: {len(findings)} findings in {num_files} files", err=True)
