"""What `torch-pjrt plan` does: read the request, plan, show, and write files whole or not at all."""

from __future__ import annotations

__all__ = ["run", "show_list"]

import json
import os
import pathlib
import re
import tempfile
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from torch_pjrt.plan import chips as chip_table
from torch_pjrt.plan import compare, compiled, emit, families, migration, page, report_data, work
from torch_pjrt.plan import layout as layouts
from torch_pjrt.plan.assumptions import TABLE, Assumptions
from torch_pjrt.plan.calibration import Calibration
from torch_pjrt.plan.workload import SHORT, MissingExtraError, PlanError, Workload

NONE_FITS, USAGE, MISSING = 1, 2, 3
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_AMOUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def run(**options: Any) -> int:
    """Plan and report. Gives the exit code."""
    try:
        return _run(**options)
    except MissingExtraError as error:
        click.echo(f"Error: {error}", err=True)
        return MISSING
    except PlanError as error:
        raise click.UsageError(str(error)) from error


def _run(
    *,
    model: str,
    chips: str,
    count: int | None,
    layout: str | None,
    prices: str | None,
    ownership: str,
    utilisation: str | None,
    assume: Sequence[str],
    as_json: bool,
    html: str | None,
    compiles: bool,
    checked: str | None,
    today: str | None,
    moving: str | None,
    measure: bool,
    calibration: str | None,
    emit: str | None,
    wanted: str | None,
    command: str,
    output: str | None,
    **load: Any,
) -> int:
    if count is not None and count < 1:
        raise PlanError(f"--count must be at least 1, not {count}")
    fixed = layouts.parse(layout) if layout else {}
    assumed = Assumptions([*assume, *([f"utilisation={utilisation}"] if utilisation else [])])
    workload = _workload(**load)
    kept = (
        pathlib.Path(calibration) if calibration else pathlib.Path(click.get_app_dir("torch-pjrt"), "calibration.json")
    )
    known = Calibration.read(kept)
    kinds, listed = chip_table.chosen(chips, known.chips()), chip_table.prices(prices)
    if wanted is not None:
        chip_table.chosen(wanted)
    if moving is not None and today is None:
        raise PlanError("--migration-cost needs --from: the chip that you use now")
    stated = migration.stated(moving, assumed) if moving is not None else None
    if today is not None:
        kinds = list({c.name: c for c in (*kinds, *chip_table.chosen(today))}.values())
        today = chip_table.chosen(today)[0].name
    _writable(html, output)
    if emit and not command.strip():
        raise PlanError("--emit needs the command to run, as in --run 'python train.py'")
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("recording the model", total=len(kinds) + 1)
        subject = families.subject(model, workload, _reader())
        counted = work.of(subject, workload, fused_attention=bool(assumed.high("fused-attention")))
        if measure:
            bar.update(task, description="running it here")
            here = _measure(subject, workload, counted, assumed, known, kept)
            kinds = list({c.name: c for c in (*kinds, here)}.values())
        maker = lambda load: families.subject(model, load, _reader())
        step = lambda text: bar.update(task, description=text, advance=1)
        made = compare.plan(
            counted,
            kinds,
            listed,
            assumed,
            ownership=ownership,
            count=count,
            layout=fixed,
            calibration=known,
            refine=(lambda rows: compiled.refine(rows, maker, workload, counted, assumed, step)) if compiles else None,
            progress=step,
        )
    _migration(made, checked or (subject.source if subject.source.endswith(".py") else None))
    if today is not None:
        compare.leave(made, today, stated or migration.from_findings(made.findings or [], assumed))
    return _report(made, as_json, html, emit, wanted, command, output)


def _reader() -> Any:
    from torch_pjrt.integrations.hf_config import from_config

    def read(path: Any, *, train: bool, **sizes: Any) -> Any:
        return from_config(path, mode="train" if train else "infer", **sizes)

    return read


def _workload(
    *,
    kind: str,
    batch: int,
    sequence: int,
    dtype: str,
    master: str,
    recompute: str,
    accumulate: int,
    quantity: str | None,
    deadline: str | None,
    latency: str | None,
) -> Workload:
    if deadline and not quantity:
        raise PlanError("--deadline needs --tokens or --samples: how much is to be done by then")
    master = SHORT.get(master, master)
    if master not in ("float32", "bfloat16", "float16"):
        raise PlanError(f"--master must be float32, bfloat16 or float16, not {master!r}")
    return Workload(
        kind,
        batch,
        sequence,
        SHORT.get(dtype, dtype),
        master,
        recompute,
        accumulate,
        _number(quantity, _AMOUNTS, "--tokens"),
        _number(deadline, _TIMES, "--deadline"),
        _number(latency, _TIMES, "--latency"),
    )


def _number(text: str | None, units: dict[str, float], option: str) -> float | None:
    """A number with a unit."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    try:
        if found is not None and found[2] in units:
            return float(found[1]) * units[found[2]]
    except ValueError:
        pass
    raise PlanError(
        f"{option} {text!r}: a number with one of the units {', '.join(u for u in units if u)}, or with none"
    )


def _writable(*paths: str | None) -> None:
    for path in paths:
        folder = pathlib.Path(path).absolute().parent if path else None
        if folder is not None and (
            not folder.is_dir() or not os.access(folder, os.W_OK) or pathlib.Path(str(path)).is_dir()
        ):
            raise PlanError(f"cannot write {path}")


def _write(path: str, text: str) -> None:
    """All of it or nothing."""
    target = pathlib.Path(path).absolute()
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, target)
    click.echo(f"wrote {path}", err=True)


def _measure(
    subject: Any, workload: Workload, counted: work.Work, assumed: Assumptions, known: Calibration, kept: pathlib.Path
) -> chip_table.Chip:
    """Run it here and keep the time. Gives this machine's chip."""
    from torch_pjrt.plan import attention, estimate, layout
    from torch_pjrt.plan import measure as measuring

    machine = measuring.machine(workload.dtype)
    chip = machine.as_chip() if machine else chip_table.chips()[measuring.present_chip()[0]]
    same = counted.with_attention(attention.of(chip, assumed).fused)
    timed = estimate.step_time(same, chip, layout.Layout(), assumed)
    entry = measuring.run(subject, workload, middle=timed[0].mid if timed else None)
    known.add(entry, machine)
    known.write(kept)
    rate = counted.units / entry.seconds
    click.echo(
        f"measured on {entry.where}: {report_data.seconds(entry.seconds)} a step "
        f"({report_data.seconds(entry.low)} to {report_data.seconds(entry.high)}), "
        f"{report_data.short(counted.flops / entry.seconds, 'flop/s')}, "
        f"{report_data.short(rate)} {counted.unit}s/s; kept in {kept}",
        err=True,
    )
    return chip


def _migration(made: compare.Plan, path: str | None) -> None:
    if not path:
        return
    try:
        from torch_pjrt.check import files
    except ImportError as error:
        raise MissingExtraError(f"--check needs torch_pjrt.check, which does not import: {error}") from error
    try:
        wanted = files.collect([path])
    except files.PathError as error:
        raise PlanError(f"--check: {error}") from error
    made.findings = [one for each in wanted for one in files.check_file(each)]
    made.findings_of = path


def _report(
    made: compare.Plan,
    as_json: bool,
    html: str | None,
    engine: str | None,
    wanted: str | None,
    command: str,
    output: str | None,
) -> int:
    job = emit.job(made, engine, command, wanted) if engine else None
    if html:
        _write(html, page.as_html(made))
    if job is not None and output:
        _write(output, job)
    if as_json:
        data = report_data.as_dict(made)
        click.echo(json.dumps(data if job is None else {**data, "job": job}, indent=2))
    else:
        from .plan_page import show

        show(made, Console(stderr=job is not None and not output, highlight=False, soft_wrap=True))
        if job is not None and not output:
            click.echo(job, nl=False)
    return 0 if any(r.step is not None and r.meets is not False for r in made.rows) else NONE_FITS


def show_list() -> None:
    """Models, chips and assumptions that there are."""
    click.echo("models       " + ", ".join(families.BUILT_IN))
    click.echo("chips        " + ", ".join(chip_table.chips()))
    for row in TABLE:
        click.echo(f"assumption   {row.name}={row.text}: {row.meaning} ({row.basis})")
