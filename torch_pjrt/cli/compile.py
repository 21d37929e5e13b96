"""`torch-pjrt compile`: a model compiled for chips that need not be here; the report as text or JSON."""

from __future__ import annotations

__all__ = ["run"]

import contextlib
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import click
import jax
import torch
from rich.console import Console
from rich.table import Table

from torch_pjrt.errors import BadSettingError, PjrtError
from torch_pjrt.pjrt import targets


def run(
    *,
    model: str | None,
    config: str | None,
    exported: str | None,
    names: Sequence[str],
    mode: str,
    batch: int,
    length: int,
    dtype: str | None,
    precision: str | None,
    as_json: bool,
    save_executable: str | None,
    save_stablehlo: str | None,
    as_list: bool,
    mesh: str | None,
    mesh_rules: str | None,
    loops: bool,
    effort: float,
    isolated: bool,
) -> int:
    """Compile and report. Gives the exit code."""
    if as_list:
        list_targets()
        return 0
    if sum(bool(each) for each in (model, config, exported)) != 1:
        raise click.UsageError("give one of --model, --config and --exported")
    if (save_executable or save_stablehlo) and len(names) != 1:
        raise click.UsageError("saving takes one --target")
    jax.config.update("jax_platforms", "cpu")  # only compilers are wanted of the plugins: no chip is looked for
    if precision:
        torch.set_float32_matmul_precision(precision)
    from torch_pjrt import aot
    from torch_pjrt.aot.mesh import parse_mesh

    if mesh_rules and not mesh:
        raise click.UsageError("--mesh-rules needs --mesh")
    console = Console(stderr=True)
    try:
        chips = parse_mesh(mesh, mesh_rules) if mesh else None
        made, args, kwargs = _load(model, config, exported, mode, batch, length, dtype)
        with console.status(f"compiling for {', '.join(names)}") if console.is_terminal else contextlib.nullcontext():
            reports = aot.compile_all(
                made,
                args,
                kwargs,
                targets_=names,
                mode=mode,
                mesh=chips,
                loops=loops,
                effort=effort,
                isolated=isolated,
            )
    except BadSettingError as error:
        raise click.UsageError(str(error)) from error
    except PjrtError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps([r.as_dict() for r in reports], indent=2))
    else:
        for report in reports:
            click.echo(str(report))
    if save_stablehlo:
        pathlib.Path(save_stablehlo).write_text(reports[0].stablehlo(), encoding="utf-8")
    if save_executable and reports[0].compiled is not None:
        pathlib.Path(save_executable).write_bytes(reports[0].executable())
    return 0 if all(r.ok for r in reports) else 1


def _load(
    model: str | None, config: str | None, exported: str | None, mode: str, batch: int, length: int, dtype: str | None
) -> tuple[Any, Any, dict[str, Any]]:
    if config:
        from torch_pjrt.integrations.hf_config import from_config

        wanted = getattr(torch, dtype, None) if dtype else None
        if dtype and not isinstance(wanted, torch.dtype):
            raise click.UsageError(f"--dtype {dtype}: torch has no such dtype")
        return from_config(config, batch=batch, length=length, mode=mode, dtype=wanted)
    if exported:
        program = torch.export.load(exported)
        args, kwargs = program.example_inputs
        return program, args, dict(kwargs)
    assert model is not None
    name, _, function = model.partition(":")
    if not function:
        raise click.UsageError(f"--model takes module:function, not {model!r}")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(name), function)()
    except Exception as error:
        raise click.UsageError(f"--model {model}: {type(error).__name__}: {error}") from error
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        raise click.UsageError(f"--model {model}: it must return (model, args) or (model, args, kwargs)")
    return found if len(found) == 3 else (*found, {})


def list_targets() -> None:
    """Print the table of targets."""
    table = Table("target", "memory", "compiler", "note", box=None, pad_edge=False, header_style="bold")
    from torch_pjrt.aot.report import size

    for name, row in targets.targets().items():
        missing = targets.available(name)
        here = "lint only" if row.platform == "neuron" else "here"
        table.add_row(
            name, size(row.memory) if row.memory else "", missing.split(": ")[1] if missing else here, row.note
        )
    Console(highlight=False, soft_wrap=True).print(table, markup=False)
