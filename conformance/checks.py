"""What each test does with one OpInfo entry: every function runs all samples of a (op, dtype) and lists what differed.

Samples are recorded in batches before anything is read, so that the fused mode sees long programs; a batch that fails
as a whole is run again one sample at a time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from conformance import operands
from conformance.accuracy import WIDE, compare
from conformance.compiled import Compiled
from conformance.operands import DEVICE, Arguments, arguments_of, is_factory, on_cpu, on_device, widened
from conformance.outs import OUTS, by_the_rules, filled, narrowed, out_like, unchanged
from conformance.processing import processing, whoever_won
from conformance.quirks import EMPTY, EXACT, RANDOM, ROUGH_GRADIENTS, STATISTICS, UNLIKE_STRIDES

BATCH = 16
# So many, because a coin or the start of a pooling window often comes out the same twice.
SEEDS = range(16)
INTERNAL = ("LoweringMismatchError", "CompileError", "RuntimeFailedError")


@dataclass
class Outcome:
    """How many samples ran, what was wrong with which, and how many were left out because of a limit."""

    samples: int = 0
    skipped: int = 0
    left_out: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, index: Any, error: BaseException, arguments: Arguments | None = None) -> None:
        """Note one failure."""
        text = f"{type(error).__name__}: {str(error)[:700]}"
        self.failures.append(f"sample {index}: {text}" + (f"\n    {brief(arguments)}" if arguments else ""))


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
    exact_truth: bool = False
    refusable: bool = False  # the device may raise instead, with an error that is not an internal one


def _attempt(run: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return run(), None
    except Exception as error:  # noqa: BLE001 - judged by the caller
        return None, error


def _judge(job: Job, want: Any, got: Any) -> None:
    if job.processed is None:
        compare(
            got,
            want,
            job.truth,
            values=job.values,
            strides=job.strides,
            floor=job.floor,
            nearby=job.nearby,
            exact_truth=job.exact_truth,
        )
        return
    compare(got, want, None, values=False, strides=job.strides)
    if job.values:
        truth = None if job.truth is None else lambda: job.processed(job.truth())
        compare(job.processed(got), job.processed(want), truth, strides=False)


Together = Callable[[list[Job]], list[Any]]


def run_jobs(
    jobs: Iterable[Job], outcome: Outcome, *, batch: int = BATCH, all_at_once: Together | None = None
) -> Outcome:
    """Run jobs in batches and note failures. `all_at_once` runs the device's part of a batch, if it can."""
    for group in operands.batches(list(jobs), batch):
        host = [(job, *_attempt(job.on_host)) for job in group]
        host = [(job, want, refused) for job, want, refused in host if not _lacks_a_kernel(refused)]
        outcome.skipped += len(group) - len(host)
        chip = [(*line, *answer) for line, answer in zip(host, _on_chip(host, all_at_once), strict=True)]
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
                if not job.refusable or type(error).__name__ in INTERNAL:
                    outcome.fail(job.index, error, job.shown)
                continue
            wrong = _attempt(lambda: _judge(job, want, got))[1]  # noqa: B023
            if wrong is not None:
                outcome.fail(job.index, wrong, job.shown)
    return outcome


def _lacks_a_kernel(refused: BaseException | None) -> bool:
    return isinstance(refused, (NotImplementedError, RuntimeError)) and "not implemented for" in str(refused)


def _on_chip(host: list[tuple[Job, Any, BaseException | None]], all_at_once: Together | None) -> list[tuple[Any, Any]]:
    jobs = [job for job, _, refused in host if refused is None]
    if all_at_once is not None and len(jobs) == len(host) > 1:
        found, error = _attempt(lambda: all_at_once(jobs))
        if error is None:
            return [(result, None) for result in found]
    return [_attempt(job.on_chip) for job, _, _ in host]


def _alone(job: Job) -> Any:
    got = job.on_chip()
    torch.pjrt.synchronize()
    return got


# -- jobs from samples -------------------------------------------------------------------------------------------------


def samples_of(info: Any, dtype: torch.dtype, grad: bool, limit: int | None, outcome: Outcome) -> list[tuple[int, Any]]:
    """All samples with their positions, or `limit` of them: the first, and others that differ from dtype to dtype."""
    found = list(enumerate(info.sample_inputs("cpu", dtype, requires_grad=grad)))
    if limit is None or len(found) <= limit:
        return found
    outcome.left_out = len(found) - limit
    # a generator of our own: sample_inputs and the operators use the global ones
    chosen = random.Random(f"{info.full_name} {dtype} {grad}").sample(range(1, len(found)), limit - 1)
    return [found[0], *(found[i] for i in sorted(chosen))]


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


def _truth(info: Any, given: Arguments) -> Callable[[], Any]:
    """The result in float64: CPU torch's, or SciPy's where that is better."""
    exact = EXACT.get(info.full_name)
    if exact is None:
        return _no_grad(info, widened, given)
    return lambda: torch.as_tensor(exact(widened(given)[0][0].numpy()))


def forward(info: Any, dtype: torch.dtype, *, limit: int | None = None, compiled: Compiled | None = None) -> Outcome:
    """Results of every sample."""

    outcome, place = Outcome(), operands.keeping(info.full_name, on_device)
    function = info if compiled is None else compiled.alone

    def jobs() -> Iterable[Job]:
        for index, sample in samples_of(info, dtype, False, limit, outcome):
            given = arguments_of(sample)
            yield _job(
                info,
                index,
                sample,
                _no_grad(info, on_cpu, given),
                _no_grad(function, place, given),
                _truth(info, given),
                nearby(lambda make, g=given: _no_grad(info, make, g)),
            )

    def all_at_once(group: list[Job]) -> list[Any]:
        with torch.no_grad():
            return compiled.together([place(job.shown) for job in group])

    return run_jobs(jobs(), outcome, all_at_once=all_at_once if compiled else None)


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
        exact_truth=info.full_name in EXACT,
        processed=processing(info.full_name, sample),
        nearby=nearby,
    )


def views(info: Any, dtype: torch.dtype, *, limit: int | None = None) -> Outcome:
    """As forward, with operands that are strided, transposed or offset views made on the device."""

    outcome = Outcome()

    def jobs() -> Iterable[Job]:
        for (index, sample), make in zip(
            samples_of(info, dtype, False, limit, outcome), itertools.cycle(operands.VIEWS)
        ):  # noqa: B905
            given = arguments_of(sample)
            if is_factory(given):
                continue
            host = _no_grad(info, lambda a, m=make: operands.through_views(a, "cpu", m), given)
            if _attempt(host)[1] is not None and _attempt(_no_grad(info, on_cpu, given))[1] is None:
                continue  # a CPU kernel that wants its operands contiguous
            place = operands.keeping(info.full_name, lambda a, m=make: operands.through_views(a, DEVICE, m))
            truth = _truth(info, given)
            close = nearby(lambda make, g=given: _no_grad(info, make, g))
            name = f"{index} ({make.__name__[1:]})"
            yield _job(info, name, sample, host, _no_grad(info, place, given), truth, close)

    return run_jobs(jobs(), outcome)


Asked = tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]


def _asked(sample: Any, made: Arguments, result: Any) -> Asked:
    """Which outputs to differentiate by which leaves, and with which seeds."""
    leaves = operands.differentiable(made)
    out = sample.output_process_fn_grad(result)
    outs = [o for o in torch.utils._pytree.tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
    if not outs or not leaves:
        return [], [], []
    generator = torch.Generator().manual_seed(7)
    seeds = []
    for o in outs:
        kind = torch.complex128 if o.dtype.is_complex else torch.float64
        seed = torch.randn(o.shape, generator=generator, dtype=kind).to(_narrow(o.dtype))
        seeds.append(seed.to(o.dtype).to(o.device))
    return outs, leaves, seeds


def _differentiated(asked: list[Asked]) -> list[list[Any]]:
    """The gradients of each, from one pass."""
    outs, leaves, seeds = (list(itertools.chain(*part)) for part in zip(*asked, strict=True))
    found = iter(torch.autograd.grad(outs, leaves, seeds, allow_unused=True) if outs else ())
    return [list(itertools.islice(found, len(own))) for _, own, _ in asked]


def _gradients(function: Callable[..., Any], sample: Any, make: Callable[[Arguments], Arguments]) -> Callable[[], Any]:
    def run() -> Any:
        args, kwargs = made = make(arguments_of(sample))
        return _differentiated([_asked(sample, made, function(*args, **kwargs))])[0]

    return run


def _narrow(dtype: torch.dtype) -> torch.dtype:
    """bfloat16, so that the seeds of all dtypes are the same numbers."""
    return torch.complex64 if dtype.is_complex else torch.bfloat16


def backward(info: Any, dtype: torch.dtype, *, limit: int | None = None, compiled: Compiled | None = None) -> Outcome:
    """Gradients of every sample with fixed seeds."""

    outcome, place = Outcome(), operands.keeping(info.full_name, on_device)
    function = info if compiled is None else compiled.alone
    samples = dict(samples_of(info, dtype, True, limit, outcome))

    def jobs() -> Iterable[Job]:
        for index, sample in samples.items():
            host = _gradients(info, sample, on_cpu)
            yield Job(
                index,
                arguments_of(sample),
                host,
                _gradients(function, sample, place),
                _gradients(info, sample, widened),
                values=_has_values(info.full_name, host),
                strides=False,
                floor=max(1.0, ROUGH_GRADIENTS.get(info.full_name, 0.0) / torch.finfo(dtype).eps),
                processed=whoever_won(info.full_name, sample),
                nearby=nearby(lambda make, s=sample: _gradients(info, s, make)),
            )

    def all_at_once(group: list[Job]) -> list[Any]:
        made = [place(job.shown) for job in group]
        results = compiled.together(made)
        return _differentiated([_asked(samples[j.index], m, r) for j, m, r in zip(group, made, results, strict=True)])

    return run_jobs(jobs(), outcome, all_at_once=all_at_once if compiled else None)


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

    outcome = Outcome()

    def jobs() -> Iterable[Job]:
        for index, sample in samples_of(info, dtype, False, limit, outcome):
            if sample.broadcasts_input:
                continue
            given = arguments_of(sample)
            yield _job(info, index, sample, written(on_cpu, given), written(on_device, given), None)

    return run_jobs(jobs(), outcome)


def out(info: Any, dtype: torch.dtype, *, limit: int | None = None) -> Outcome:
    """out= with tensors of the right form, empty ones, strided views and wider dtypes; refusals must be torch's."""

    def written(
        make: Callable[[Arguments], Arguments], given: Arguments, kind: str, device: str, like: Any
    ) -> Callable[[], Any]:
        def run() -> Any:
            args, kwargs = make(given)
            target = out_like(like, lambda x: OUTS[kind](x, device))
            with torch.no_grad():
                info(*args, **kwargs, out=target)
            return target

        return run

    outcome = Outcome()

    def jobs() -> Iterable[Job]:
        kinds = itertools.cycle(OUTS)
        for index, sample in samples_of(info, dtype, False, limit, outcome):
            given = arguments_of(sample)
            like, error = _attempt(_no_grad(info, on_cpu, given))
            if error is not None or like is None:
                continue
            kind = next(kinds)
            for each in OUTS if index < 1 else (kind,):
                host = written(on_cpu, given, each, "cpu", like)
                chip = written(on_device, given, each, DEVICE, like)
                # which of torch's kernels cast their result follows no rule: refused here, it is refused or right there
                free = each == "wider" and _attempt(host)[1] is not None
                drawn = info.full_name in RANDOM
                if free:
                    host = partial(filled, like, each)
                elif not drawn:
                    host = by_the_rules(host, like, each)
                job = _job(info, f"{index} (out {each})", sample, host, chip, _truth(info, given))
                job.on_host = host  # statistics too have the dtype of their output
                if each == "wider":  # computed in the operands' dtype, then cast
                    process = job.processed or unchanged
                    job.processed = lambda result, process=process: process(narrowed(result, dtype))
                    job.truth = job.truth if dtype in WIDE else None
                    job.refusable, job.values = free, job.values and not (free and drawn)
                yield job

    return run_jobs(jobs(), outcome)


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
        elsewhere = () if copied else (ours[index].error_type,)  # torch's class for devices other than the CPU

        def run(made: Arguments = made) -> None:
            _no_grad(info, lambda a: a, made)()
            torch.pjrt.synchronize()

        error = _attempt(run)[1]
        if error is None:
            outcome.fail(index, AssertionError(f"nothing raised; torch: {error_input.error_regex[:100]}"), given)
        elif type(error).__name__ in INTERNAL or not isinstance(error, (type(refused), *elsewhere)):
            outcome.fail(index, TypeError(f"torch raises {refused!r:.200}, the device {error!r:.400}"), given)
        _attempt(torch.pjrt.synchronize)
    return outcome
