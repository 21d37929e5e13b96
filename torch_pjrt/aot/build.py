"""torch_pjrt.aot.compile: a model or its whole training step, compiled for a chip that need not be here.

The Program comes from export/trace.py, its lowering is the one that the device itself uses, the compilers come from
pjrt/targets.py. Owns the order of those and the reading of what a compiler answers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import torch

from torch_pjrt._version import __version__
from torch_pjrt.aot import report as words
from torch_pjrt.aot import trainium
from torch_pjrt.aot.blame import kinds_of_steps, refused_step
from torch_pjrt.aot.lowering import Lowered, lower, lower_step, plan_of
from torch_pjrt.aot.mesh import Mesh, collectives, parse_mesh
from torch_pjrt.aot.report import Memory, Report
from torch_pjrt.dispatch.lines import show, user_file
from torch_pjrt.errors import BadSettingError, CompileError, PjrtError
from torch_pjrt.export.trace import Traced, trace
from torch_pjrt.pjrt import jax_compat, targets, trial
from torch_pjrt.program.roll import Plan
from torch_pjrt.tensor.runtime import runtime

MODES = ("infer", "train", "decode")
_LOOPS = ("tpu", "cuda")  # platforms whose compilers take long over many equal layers
_SCOPE = re.compile(r"[\w.]+@[\w.\-]+(?::\d+)?")
_NO_SOURCE = re.compile(r"\s*Suspected Python Code Location:\s*<no source information>")


def compile(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str = "cpu",
    mode: str = "infer",
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
    mesh: Mesh | str | None = None,
    loops: bool = True,
    effort: float = 0.0,
    isolated: bool = False,
) -> Report:
    """Compile a model for a target and say what came of it. Nothing is run, and weights may be on the meta device.

    mode: "infer" (the model in eval mode), or "train" (in training mode: loss, backward and one step of the optimizer, in which
    parameters and optimizer state are overwritten). loss: function of the model's result; without it the result's `loss`, else
    the mean square of what it gives. optimizer: function of the parameters; without it AdamW.
    "decode" is "infer" with the arguments of one token, its cache among them and overwritten (hf_config makes them).
    mesh: several devices, as "data=2,model=2" (aot/mesh.py); the report is about one of them.
    loops: let TPU and GPU compilers see blocks of equal layers as loops, which they compile once (program/roll.py).
    effort: how hard the compiler tries to make the program fast, from -1 (compiles soonest) to 1; 0 is its own choice.
    isolated: try the compiler in a process of its own first, for a program over which it ends this one. Done unasked where
    a compiler is known for that.
    Raises MissingPluginError, with the command that installs it, when the target's compiler is not here. What stands in the
    program's own way is in the report; `report.check()` raises it.
    """
    return compile_all(
        model,
        args,
        kwargs,
        targets_=(target,),
        mode=mode,
        loss=loss,
        optimizer=optimizer,
        mesh=mesh,
        loops=loops,
        effort=effort,
        isolated=isolated,
    )[0]


def compile_all(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    targets_: Sequence[str],
    mode: str = "infer",
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
    mesh: Mesh | str | None = None,
    loops: bool = True,
    effort: float = 0.0,
    isolated: bool = False,
) -> list[Report]:
    """As compile, for several targets; the model is recorded once."""
    if mode not in MODES:
        raise BadSettingError(f"there is no mode {mode!r}", todo=f"Choose one of {', '.join(MODES)}.")
    if not -1 <= effort <= 1:
        raise BadSettingError(
            f"there is no effort {effort:g}", todo="Choose one from -1 to 1; 0 is the compiler's own."
        )
    mesh = parse_mesh(mesh) if isinstance(mesh, str) else mesh
    devices = {name: targets.devices_for(name, mesh.size if mesh is not None else 1) for name in targets_}
    runtime()  # the package's own troubles are not the model's
    begin = time.perf_counter()
    try:
        traced = _traced(model, args, kwargs, mode, loss, optimizer)
    except Exception as error:  # noqa: BLE001 - the model's own errors are the answer
        return [_refused(Report(name, mode, trace_seconds=time.perf_counter() - begin), error) for name in targets_]
    seconds = time.perf_counter() - begin
    plan = plan_of(traced) if loops and any(targets.target(n).platform in _LOOPS for n in targets_) else None
    reports = []
    for name, chips in devices.items():
        report = Report(name, mode, trace_seconds=seconds, ops=len(traced.program.steps), effort=effort)
        report.parameters = sum(torch.Size(i.size).numel() for i in traced.inputs if i.kind == "parameter")
        row = targets.target(name)
        report.versions = _versions(row.platform)
        report.chip_memory, report.note = row.memory, row.note
        try:
            apart = isolated or trial.dreaded(row.platform, _dtypes(traced))
            _compile(report, traced, row, chips, plan if row.platform in _LOOPS else None, mesh, apart)
        except Exception as error:  # noqa: BLE001 - compilers raise their own types
            _refused(report, error, traced)
            if report.where is None and report.verdict == words.REFUSED:
                report.where = _refused_line(report, traced, row, chips[0])
        reports.append(report)
    return reports


def _traced(model: Any, args: Any, kwargs: Any, mode: str, loss: Any, optimizer: Any) -> Traced:
    if not isinstance(model, torch.nn.Module):
        return trace(model, args, kwargs, train=mode == "train", loss=loss, optimizer=optimizer)
    before = {name: module.training for name, module in model.named_modules()}
    model.train(mode == "train")
    try:
        return trace(model, args, kwargs, train=mode == "train", loss=loss, optimizer=optimizer)
    finally:
        for name, module in model.named_modules():
            module.training = before[name]


def _compile(
    report: Report,
    traced: Traced,
    row: targets.Target,
    chips: list[Any],
    plan: Plan | None,
    mesh: Mesh | None,
    apart: bool,
) -> None:
    precision = torch.get_float32_matmul_precision()
    is_lint = row.platform == "neuron"
    lowered = lower(traced, chips, precision, plan=plan, mesh=mesh, platform=_other_platform(row))
    report.lowered, report.loops, report.arguments = lowered.stage, lowered.loops, lowered.arguments
    report.argument_bytes = lowered.argument_bytes
    report.mesh = str(mesh) if mesh is not None else ""
    report.cost.flops, report.cost.bytes = lowered.costs.get("flops"), lowered.costs.get("bytes accessed")
    if is_lint:
        found = trainium.lint(report.lowered.compiler_ir("stablehlo"))
        report.findings = [_with_line(f, traced) for f in found]
        report.verdict = words.FINDINGS if found else words.CLEAN
        return
    begin = time.perf_counter()
    try:
        if apart:
            _try_apart(report, traced, row, chips, lowered)
        report.compiled = report.lowered.compile(_options(report))
    except Exception as error:
        if plan is None or _is_of_memory(str(error)):
            raise
        _compile(
            report, traced, row, chips, None, mesh, apart
        )  # a compiler may take straight what it does not take as loops
        return
    report.compile_seconds = time.perf_counter() - begin
    stats = report.compiled.memory_analysis()
    if stats is not None:
        report.memory = Memory(
            arguments=stats.argument_size_in_bytes,
            outputs=stats.output_size_in_bytes,
            temporaries=stats.temp_size_in_bytes,
            code=stats.generated_code_size_in_bytes,
            reused=stats.alias_size_in_bytes,
        )
    if mesh is not None:
        report.collectives = collectives(report.compiled.as_text() or "")
    costs = (report.compiled.cost_analysis() or {}) if not report.loops else {}  # it counts a loop's body once
    report.cost.compiler_flops, report.cost.compiler_bytes = costs.get("flops"), costs.get("bytes accessed")
    estimate = costs.get("optimal_seconds")
    report.cost.compiler_seconds = estimate if estimate is not None and estimate > 0 else None
    fits = report.memory is None or row.memory is None or report.memory.total <= row.memory
    report.verdict = words.COMPILES if fits else words.TOO_LARGE


def _dtypes(traced: Traced) -> set[Any]:
    """Of all values in a program."""
    program = traced.program
    return {s.dtype for s in program.in_specs} | {o.spec.dtype for t, _ in program.steps for o in t.outs}


def _try_apart(report: Report, traced: Traced, row: targets.Target, chips: list[Any], lowered: Lowered) -> None:
    """Raise CompileError, with the user's line, if the compiler ends its process over the program."""
    options = _options(report)
    found = trial.first_fatal(row.name, [_text(lowered.stage)], count=len(chips), options=options)
    if found is None:
        return
    precision, numbers = torch.get_float32_matmul_precision(), list(kinds_of_steps(traced))
    alone = [_text(lower_step(traced, n, chips[0], precision)) for n in numbers]
    blamed = trial.first_fatal(row.name, alone, options=options)
    step = None if blamed is None else numbers[blamed[0]]
    raise CompileError(
        f"the compiler for {row.name} ended its process instead of giving an answer"
        + ("" if step is None else f": over {traced.program.steps[step][0].row.title}"),
        where=None if step is None else show(traced.lines[step]) or traced.scope(step),
        todo="Leave this operation to the host, or take another dtype for it.",
        detail=found[1],
    )


def _text(stage: Any) -> bytes:
    return str(stage.as_text()).encode()


def _with_line(finding: trainium.Finding, traced: Traced) -> trainium.Finding:
    where = traced.where(finding.scope) if finding.scope else None
    return trainium.Finding(finding.rule, finding.op, finding.text, finding.scope, where)


def _refused(report: Report, error: Exception, traced: Traced | None = None) -> Report:
    """The report of a program that could not be recorded, lowered or compiled, with the user's line if the error has one."""
    notes = [n for n in getattr(error, "__notes__", ()) if "JAX_TRACEBACK_FILTERING" not in n]  # of JAX's own frames
    text = _NO_SOURCE.sub("", "\n".join((f"{type(error).__name__}: {error}", *notes))).rstrip()
    report.error = text
    report.verdict = words.TOO_LARGE if _is_of_memory(text) else words.REFUSED
    if isinstance(error, PjrtError):
        report.where = error.where
    if report.where is None and traced is not None:
        for scope in _SCOPE.findall(text):
            report.where = traced.where(scope)
            if report.where:
                break
    if report.where is None and traced is None:
        report.where = _line_of(error)
    return report


def _other_platform(row: targets.Target) -> str | None:
    """What to lower for where that is not the platform of the device used: a lint runs on the CPU's."""
    return row.platform if row.platform == "neuron" else None


def _options(report: Report) -> dict[str, Any] | None:
    return {"exec_time_optimization_effort": report.effort} if report.effort else None


def _refused_line(report: Report, traced: Traced, row: targets.Target, chip: Any) -> str | None:
    """The user's line of the step that is refused by itself, for a compiler's error that names none."""
    step = refused_step(
        traced,
        chip,
        torch.get_float32_matmul_precision(),
        platform=_other_platform(row),
        compiles=report.lowered is not None,
        options=_options(report),
    )
    return None if step is None else show(traced.lines[step]) or traced.scope(step)


def _is_of_memory(text: str) -> bool:
    """Whether a compiler's error says that the device's memory is too small."""
    return "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text


def _line_of(error: Exception) -> str | None:
    """The innermost line outside torch and this package at which an error was raised."""
    found = None
    at = error.__traceback__
    while at is not None:
        if user_file(at.tb_frame.f_code.co_filename):
            found = show((at.tb_frame.f_code, at.tb_lasti))
        at = at.tb_next
    return found


def _versions(platform: str) -> dict[str, str]:
    return {
        "torch_pjrt": __version__,
        "torch": torch.__version__,
        "jax": jax.__version__,
        "jaxlib": jax_compat.jaxlib_version(),
        **targets.compiler_version(platform),
    }
