"""What each test does with one OpInfo entry: every function runs all samples of a (op, dtype) and lists what differed.

Samples are recorded in batches before anything is read, so that the fused mode sees long programs; a batch that fails
as a whole is run again one sample at a time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance import operands
from conformance.accuracy import WIDE, compare
from conformance.operands import DEVICE, Arguments, arguments_of, on_cpu, on_device, widened
from conformance.quirks import EMPTY, RANDOM, STATISTICS, TIED, UNLIKE_STRIDES

BATCH = 16
# So many, because a coin or the start of a pooling window often comes out the same twice.
SEEDS = range(16)
INTERNAL = ("LoweringMismatchError", "CompileError", "RuntimeFailedError")


@dataclass
class Outcome:
    """How many samples ran, and what was wrong with which."""

    samples: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, index: Any, error: BaseException, arguments: Arguments | None = None) -> None:
        """Note one failure."""
        text = f"{type(error).__name__}: {str(error)[:700]}"
        self.failures.append(f"sample {index}: {text}" + (f"\n    {brief(arguments)}" if arguments else ""))


def is_factory(arguments: Arguments) -> bool:
    """Whether no operand says which device is meant."""
    return not any(isinstance(x, (torch.Tensor, torch.device)) for x in torch.utils._pytree.tree_leaves(arguments))


def brief(arguments: Any) -> str:
    """Operands in a line."""

    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            strided = x.layout == torch.strided and not x.is_contiguous()
            return f"{str(x.dtype)[6:]}{list(x.shape)}" + (f"/{list(x.stride())}" if strided else "")
        return x

    return str(torch.utils._pytree.tree_map(one, arguments))[:400]


@dataclass
class Job:
    """One comparison: how to make it on the CPU, on the device, in float64, and nearby (see accuracy.compare)."""

    index: Any
    shown: Arguments
    on_host: Callable[[], Any]
    on_chip: Callable[[], Any]
    truth: Callable[[], Any] | None
    values: bool = True
    strides: bool = True
    floor: float = 0.0
    processed: Callable[[Any], Any] | None = None
    nearby: Callable[[int], tuple[Any, Any]] | None = None


def _attempt(run: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return run(), None
    except Exception as error:  # noqa: BLE001 - judged by the caller
        return None, error


def _judge(job: Job, want: Any, got: Any) -> None:
    if job.processed is None:
        compare(got, want, job.truth, values=job.values, strides=job.strides, floor=job.floor, nearby=job.nearby)
        return
    compare(got, want, None, values=False, strides=job.strides)
    if job.values:
        truth = None if job.truth is None else lambda: job.processed(job.truth())
        compare(job.processed(got), job.processed(want), truth, strides=False)


def run_jobs(jobs: Iterable[Job], outcome: Outcome, *, batch: int = BATCH) -> Outcome:
    """Run jobs in batches and note failures."""
    for group in operands.batches(list(jobs), batch):
        chip = []
        for job in group:
            want, refused = _attempt(job.on_host)
            if (
                refused is not None
                and isinstance(refused, (NotImplementedError, RuntimeError))
                and "not implemented for" in str(refused)
            ):
                outcome.skipped += 1
                continue
            got, error = _attempt(job.on_chip)
            chip.append((job, want, refused, got, error))
        together = _attempt(torch.pjrt.synchronize)[1]
        for job, want, refused, got, error in chip:
            outcome.samples += 1
            if together is not None and error is None:
                del got
                got, error = _attempt(lambda: _alone(job))  # noqa: B023
            if refused is not None:
                if error is None:
                    outcome.fail(
                        job.index,
                        AssertionError(f"torch raises {str(refused)[:120]!r}, the device does not"),
                        job.shown,
                    )
                continue
            if error is not None:
                outcome.fail(job.index, error, job.shown)
                continue
            wrong = _attempt(lambda: _judge(job, want, got))[1]  # noqa: B023
            if wrong is not None:
                outcome.fail(job.index, wrong, job.shown)
    return outcome


def _alone(job: Job) -> Any:
    got = job.on_chip()
    torch.pjrt.synchronize()
    return got


# -- jobs from samples -------------------------------------------------------------------------------------------------


def samples_of(info: Any, dtype: torch.dtype, grad: bool, limit: int | None) -> list[tuple[int, Any]]:
    """All samples with their positions, or `limit` of them: the first, and others that differ from dtype to dtype."""
    found = list(enumerate(info.sample_inputs("cpu", dtype, requires_grad=grad)))
    if limit is None or len(found) <= limit:
        return found
    # a generator of our own: sample_inputs and the operators use the global ones
    chosen = random.Random(f"{info.full_name} {dtype} {grad}").sample(range(1, len(found)), limit - 1)
    return [found[0], *(found[i] for i in sorted(chosen))]


def _tied_dim(name: str, sample: Any) -> int | None:
    """The dim along which equal values leave an index free; None where nothing does."""
    dim = sample.kwargs.get("dim", [*sample.args, None, None][TIED[name]])
    dim = -1 if dim is None else dim
    return None if isinstance(dim, bool) or sample.kwargs.get("stable") else dim


def _pointed_at(name: str, sample: Any) -> Callable[[Any], Any] | None:
    """For (values, indices) with free ties: the values, and those that the indices point at."""
    dim = _tied_dim(name, sample)
    if dim is None:
        return None
    chosen = name in ("kthvalue", "mode")  # one position for each line

    def run(result: Any) -> Any:
        values, indices = (result, result) if isinstance(result, torch.Tensor) else result
        source = sample.input.detach().to(indices.device)
        if source.dim() == 0:
            return values, source.expand_as(indices)
        whole = indices if indices.dim() == source.dim() else indices.unsqueeze(dim)
        found = source.gather(dim, whole).reshape(values.shape)
        return found if values is indices else (values, found), not chosen and _repeats(indices, dim)

    return run


def _repeats(indices: torch.Tensor, dim: int) -> bool:
    """Whether a position occurs twice along dim, which no order of equal values explains."""
    ordered = indices.cpu().sort(dim).values
    return ordered.shape[dim] > 1 and bool((ordered.diff(dim=dim) == 0).any())


def _whoever_won(name: str, sample: Any) -> Callable[[Any], Any] | None:
    """For gradients of operators with free ties: their sums over equal elements of each line."""
    dim = _tied_dim(name, sample) if name in TIED else None
    if dim is None or not sample.input.dim():
        return None

    def lines(x: torch.Tensor) -> torch.Tensor:
        return x.detach().cpu().movedim(dim, -1).reshape(-1, x.shape[dim])

    def run(result: Any) -> Any:
        if not result or result[0] is None or not sample.input.numel():
            return result
        sums = [torch.zeros(0, dtype=torch.float64)]
        for line, gradient in zip(lines(sample.input), lines(result[0]).double(), strict=True):
            values, places = line.unique(return_inverse=True)
            sums.append(torch.zeros(len(values), dtype=torch.float64).index_add(0, places, gradient))
        return torch.cat(sums).to(result[0].device)

    return run


def _processing(name: str, sample: Any) -> Callable[[Any], Any] | None:
    if name in TIED:
        return _pointed_at(name, sample)
    function = getattr(sample.output_process_fn_grad, "__name__", "")
    return None if function == "<lambda>" and _is_identity(sample) else sample.output_process_fn_grad


def _is_identity(sample: Any) -> bool:
    token = object()
    try:
        return sample.output_process_fn_grad(token) is token
    except Exception:  # noqa: BLE001 - it looked into the token
        return False


def _no_grad(
    function: Callable[..., Any], make: Callable[[Arguments], Arguments], given: Arguments
) -> Callable[[], Any]:
    def run() -> Any:
        args, kwargs = make(given)
        with torch.no_grad():
            if make is on_device and is_factory(given):
                with torch.device(DEVICE):
                    return function(*args, **kwargs)
            return function(*args, **kwargs)

    return run


def forward(
    info: Any, dtype: torch.dtype, *, limit: int | None = None, wrap: Callable[..., Any] | None = None
) -> Outcome:
    """Results of every sample. `wrap` makes the function that runs on the device (torch.compile)."""

    def jobs() -> Iterable[Job]:
        for index, sample in samples_of(info, dtype, False, limit):
            given = arguments_of(sample)
            function = info if wrap is None else wrap(info)
            yield _job(
                info,
                index,
                sample,
                _no_grad(info, on_cpu, given),
                _no_grad(function, operands.keeping(info.full_name, on_device), given),
                _no_grad(info, widened, given),
                nearby(lambda make, g=given: _no_grad(info, make, g)),
            )

    return run_jobs(jobs(), Outcome())


def nearby(
    run_with: Callable[[Callable[[Arguments], Arguments]], Callable[[], Any]],
) -> Callable[[int], tuple[Any, Any]]:
    """CPU torch's result and the truth at nudged operands; `run_with(make)` computes with operands that `make` makes."""

    def run(draw: int) -> tuple[Any, Any]:
        near, exact = (run_with(lambda a, m=make: m(operands.nudged(a, draw))) for make in (on_cpu, widened))
        return near(), exact()

    return run


def _has_values(name: str, host: Callable[[], Any]) -> bool:
    """Whether a sample's values are defined: not memory that nobody wrote, and the same for all of SEEDS on the CPU."""
    if name in EMPTY:
        return False
    return name not in RANDOM or all(_same(a, b) for a, b in itertools.pairwise(_seeded(host, s) for s in SEEDS))


def _seeded(host: Callable[[], Any], seed: int) -> list[torch.Tensor]:
    torch.default_generator.manual_seed(seed)
    leaves = torch.utils._pytree.tree_leaves(_attempt(host)[0])
    return [x.detach().nan_to_num(7) for x in leaves if isinstance(x, torch.Tensor)]


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _with_wide_statistics(host: Callable[[], Any]) -> Callable[[], Any]:
    """CPU torch's results, all but the first in float32 at least."""

    def run() -> Any:
        first, *rest = host()
        return first, *(x.float() if x.dtype in (torch.bfloat16, torch.float16) else x for x in rest)

    return run


def _job(info: Any, index: Any, sample: Any, host: Any, chip: Any, truth: Any, nearby: Any = None) -> Job:
    return Job(
        index,
        arguments_of(sample),
        _with_wide_statistics(host) if info.full_name in STATISTICS else host,
        chip,
        truth,
        values=_has_values(info.full_name, host),
        strides=info.full_name not in UNLIKE_STRIDES,
        processed=_processing(info.full_name, sample),
        nearby=nearby,
    )


def views(info: Any, dtype: torch.dtype, *, limit: int | None = None) -> Outcome:
    """As forward, with operands that are strided, transposed or offset views made on the device."""

    def jobs() -> Iterable[Job]:
        for (index, sample), make in zip(samples_of(info, dtype, False, limit), itertools.cycle(operands.VIEWS)):  # noqa: B905
            given = arguments_of(sample)
            if is_factory(given):
                continue
            host = _no_grad(info, lambda a, m=make: operands.through_views(a, "cpu", m), given)
            if _attempt(host)[1] is not None and _attempt(_no_grad(info, on_cpu, given))[1] is None:
                continue  # a CPU kernel that wants its operands contiguous
            place = operands.keeping(info.full_name, lambda a, m=make: operands.through_views(a, DEVICE, m))
            truth = _no_grad(info, widened, given)
            close = nearby(lambda make, g=given: _no_grad(info, make, g))
            name = f"{index} ({make.__name__[1:]})"
            yield _job(info, name, sample, host, _no_grad(info, place, given), truth, close)

    return run_jobs(jobs(), Outcome())


def _gradients(function: Callable[..., Any], sample: Any, make: Callable[[Arguments], Arguments]) -> Callable[[], Any]:
    given = arguments_of(sample)

    def run() -> Any:
        args, kwargs = made = make(given)
        leaves = operands.differentiable(made)
        out = sample.output_process_fn_grad(function(*args, **kwargs))
        outs = [o for o in torch.utils._pytree.tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
        if not outs or not leaves:
            return []
        generator = torch.Generator().manual_seed(7)
        seeds = []
        for o in outs:
            kind = torch.complex128 if o.dtype.is_complex else torch.float64
            seed = torch.randn(o.shape, generator=generator, dtype=kind).to(_narrow(o.dtype))
            seeds.append(seed.to(o.dtype).to(o.device))
        return list(torch.autograd.grad(outs, leaves, seeds, allow_unused=True))

    return run


def _narrow(dtype: torch.dtype) -> torch.dtype:
    """bfloat16, so that the seeds of all dtypes are the same numbers."""
    return torch.complex64 if dtype.is_complex else torch.bfloat16


def backward(
    info: Any, dtype: torch.dtype, *, limit: int | None = None, wrap: Callable[..., Any] | None = None
) -> Outcome:
    """Gradients of every sample with fixed seeds."""

    def jobs() -> Iterable[Job]:
        for index, sample in samples_of(info, dtype, True, limit):
            function = info if wrap is None else wrap(info)
            host = _gradients(info, sample, on_cpu)
            yield Job(
                index,
                arguments_of(sample),
                host,
                _gradients(function, sample, operands.keeping(info.full_name, on_device)),
                _gradients(info, sample, widened),
                values=_has_values(info.full_name, host),
                strides=False,
                floor=1.0,
                processed=_whoever_won(info.full_name, sample),
                nearby=nearby(lambda make, s=sample: _gradients(info, s, make)),
            )

    return run_jobs(jobs(), Outcome())


# -- writing -----------------------------------------------------------------------------------------------------------


def inplace(info: Any, dtype: torch.dtype, *, limit: int | None = None) -> Outcome:
    """The in-place variant: the operand must hold the result, and be what is returned."""
    variant = info.inplace_variant

    def written(make: Callable[[Arguments], Arguments], given: Arguments) -> Callable[[], Any]:
        def run() -> Any:
            args, kwargs = make(given)
            with torch.no_grad():
                out = variant(*args, **kwargs)
            target = args[0]
            if isinstance(target, torch.Tensor) and out is not target:
                raise AssertionError("the in-place variant gives another tensor")
            return target

        return run

    def jobs() -> Iterable[Job]:
        for index, sample in samples_of(info, dtype, False, limit):
            if sample.broadcasts_input:
                continue
            given = arguments_of(sample)
            yield _job(info, index, sample, written(on_cpu, given), written(on_device, given), None)

    return run_jobs(jobs(), Outcome())


def _out_like(result: Any, shape_of: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return torch.utils._pytree.tree_map(lambda x: shape_of(x) if isinstance(x, torch.Tensor) else x, result)


def _narrowed(result: Any, dtype: torch.dtype) -> Any:
    """Floats of another width back in the dtype under test."""

    def one(x: Any) -> Any:
        narrow = {_wider(d): d for d in (dtype, torch.float32, torch.complex64)}
        return x.to(narrow[x.dtype]) if isinstance(x, torch.Tensor) and x.dtype in narrow else x

    return torch.utils._pytree.tree_map(one, result)


def _wider(dtype: torch.dtype) -> torch.dtype:
    return {torch.float32: torch.float64, torch.complex64: torch.complex128, torch.int64: torch.float32}.get(
        dtype, dtype
    )


OUTS: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "same": lambda x, d: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=d),
    "empty": lambda x, d: torch.empty(0, dtype=x.dtype, device=d),
    "view": lambda x, d: (
        operands.VIEWS[0](torch.empty(x.shape, dtype=x.dtype, device=d))
        if x.dim()
        else torch.empty((), dtype=x.dtype, device=d)
    ),
    "wider": lambda x, d: torch.empty(x.shape, dtype=_wider(x.dtype), device=d),
}


def out(info: Any, dtype: torch.dtype, *, limit: int | None = None) -> Outcome:
    """out= with tensors of the right form, empty ones, strided views and wider dtypes; refusals must be torch's."""

    def written(
        make: Callable[[Arguments], Arguments], given: Arguments, kind: str, device: str, like: Any
    ) -> Callable[[], Any]:
        def run() -> Any:
            args, kwargs = make(given)
            target = _out_like(like, lambda x: OUTS[kind](x, device))
            with torch.no_grad():
                info(*args, **kwargs, out=target)
            return target

        return run

    def jobs() -> Iterable[Job]:
        kinds = itertools.cycle(OUTS)
        for index, sample in samples_of(info, dtype, False, limit):
            given = arguments_of(sample)
            like, error = _attempt(_no_grad(info, on_cpu, given))
            if error is not None or like is None:
                continue
            kind = next(kinds)
            for each in OUTS if index < 1 else (kind,):
                host = written(on_cpu, given, each, "cpu", like)
                if each == "wider" and _attempt(host)[1] is not None:
                    continue  # which of torch's kernels cast their result follows no rule
                chip = written(on_device, given, each, DEVICE, like)
                job = _job(info, f"{index} (out {each})", sample, host, chip, _no_grad(info, widened, given))
                if each == "wider":  # computed in the operands' dtype, then cast
                    job.processed = lambda result: _narrowed(result, dtype)
                    job.truth = job.truth if dtype in WIDE else None
                yield job

    return run_jobs(jobs(), Outcome())


# -- refusing ----------------------------------------------------------------------------------------------------------


def errors(info: Any, dtype: torch.dtype = torch.float32, *, limit: int | None = None) -> Outcome:
    """Every error input that CPU torch refuses must raise on the device, with an error of torch's class."""
    outcome = Outcome()
    ours, late = _attempt(lambda: list(info.error_inputs(DEVICE)))
    inputs = list(info.error_inputs("cpu"))
    copied = late is not None or len(ours) != len(inputs)
    for index, error_input in enumerate(inputs):
        given = arguments_of(error_input.sample_input)
        refused = _attempt(_no_grad(info, lambda a: a, given))[1]
        if refused is None or copied and "memory location" in f"{refused} {error_input.error_regex}":
            outcome.skipped += 1  # copies do not share memory
            continue
        outcome.samples += 1
        # made on the device, so that operands that share memory share it there too
        made = on_device(given) if copied else arguments_of(ours[index].sample_input)

        def run(made: Arguments = made) -> None:
            _no_grad(info, lambda a: a, made)()
            torch.pjrt.synchronize()

        error = _attempt(run)[1]
        if error is None:
            outcome.fail(index, AssertionError(f"nothing raised; torch: {error_input.error_regex[:100]}"), given)
        elif type(error).__name__ in INTERNAL or not isinstance(error, type(refused)):
            outcome.fail(index, TypeError(f"torch raises {refused!r:.200}, the device {error!r:.400}"), given)
        _attempt(torch.pjrt.synchronize)
    return outcome
