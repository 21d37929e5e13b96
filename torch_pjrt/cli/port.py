"""`torch-pjrt port PATH...`: shows how programs become device-agnostic, and with --write changes them."""

from __future__ import annotations

__all__ = ["port"]

import difflib
import json
import os
import pathlib
import stat
import tokenize
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from torch_pjrt.check import Finding, check_text, files, report_text

if TYPE_CHECKING:
    from torch_pjrt.port import Ported


def port(paths: Sequence[str], *, write: bool, as_json: bool, exclude: Sequence[str], quiet: bool) -> int:
    """Port, show, and give the exit code."""
    try:
        from torch_pjrt.port import port_text
    except ModuleNotFoundError as error:
        if error.name != "libcst":
            raise
        raise click.UsageError("porting needs libcst: pip install 'torch-pjrt[port]'") from error
    for one in paths:
        if not os.path.exists(one):
            raise click.UsageError(f"{one}: no such file or folder")
    wanted = [path for path in files.collect(paths, exclude) if not _leads_outside(path, paths)]
    console = Console(stderr=True)
    left: list[Finding] = []
    changed: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal or len(wanted) < 20) as progress:
        task = progress.add_task("porting", total=len(wanted))
        for path in wanted:
            progress.advance(task)
            text = _read(path)
            if text is None or path.suffix not in (".py", ".ipynb"):
                left += files.check_file(path) if text is None else check_text(text, path.as_posix())
                continue
            try:
                ported = port_text(text, path.as_posix())
            except Exception as error:  # noqa: BLE001 - one file must not keep the others from being ported
                traceback.print_exc()
                failed.append(f"{path.as_posix()}: {type(error).__name__}: {error}")
                continue
            left += ported.left
            if ported.changes:
                changed[path.as_posix()] = {"changes": ported.changes, "diff": _difference(path, text, ported)}
                if write:
                    _replace(path, ported.text)
    _show(changed, left, len(wanted), as_json=as_json, write=write, quiet=quiet)
    for one in failed:
        click.echo(f"torch-pjrt: an error of this program, not of yours; the file stays as it is: {one}", err=True)
    return 3 if failed else 1 if left else 0


def _leads_outside(path: pathlib.Path, paths: Sequence[str]) -> bool:
    """Whether a link below the paths points to a file that is not below them."""
    real = path.resolve()
    return path.is_symlink() and not any(real.is_relative_to(pathlib.Path(one).resolve()) for one in paths)


def _encoding(path: pathlib.Path) -> str:
    """That which a Python file declares; a notebook is JSON, hence UTF-8."""
    if path.suffix != ".py":
        return "utf-8"
    with path.open("rb") as file:
        return tokenize.detect_encoding(file.readline)[0]


def _read(path: pathlib.Path) -> str | None:
    """The text with its line ends, or None when it cannot be read."""
    try:
        return path.read_bytes().decode(_encoding(path))
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
        return None


def _replace(path: pathlib.Path, text: str) -> None:
    """Write the file whole or not at all, with its permissions and its encoding."""
    target = path.resolve()
    half = target.with_name(f".{target.name}.part")
    half.write_bytes(text.encode(_encoding(path)))
    half.chmod(stat.S_IMODE(target.stat().st_mode))
    half.replace(target)


def _difference(path: pathlib.Path, old: str, ported: Ported) -> str:
    """The difference of a file; of a notebook, that of each cell."""
    name = path.as_posix()
    if ported.cells:
        parts = ((f"{name} cell {cell}", *codes) for cell, codes in sorted(ported.cells.items()))
        return "".join(_unified(title, f"{before}\n", f"{after}\n") for title, before, after in parts)
    return _unified(name, old, ported.text)


def _unified(name: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _show(
    changed: dict[str, dict[str, Any]], left: list[Finding], num_files: int, *, as_json: bool, write: bool, quiet: bool
) -> None:
    if as_json:
        table = {"version": 1, "written": write, "changed": changed, "left": [one.as_dict() for one in left]}
        click.echo(json.dumps(table, indent=1))
        return
    if not write:
        for one in changed.values():
            _show_difference(one["diff"])
    places = sum(one["changes"] for one in changed.values())
    done = "changed" if write else "to change; --write does it"
    click.echo(f"{places} places in {len(changed)} of {num_files} files {done}", err=True)
    if left and not quiet:
        click.echo("\nleft for you to decide:", err=True)
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        report_text.show(sorted(left, key=lambda one: one.order), num_files, console)


def _show_difference(text: str) -> None:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in text.splitlines():
        click.echo(click.style(line, fg=colours.get(line[:1])))
