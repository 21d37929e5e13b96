"""From a Program to something that runs: memory cache, disk cache, else trace and compile.

Owns the executables of this process (each as long as some plan uses it) and the reasons for compiling them.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from torch_pjrt.config import settings
from torch_pjrt.counters import counters, forbidden
from torch_pjrt.errors import CompileError, OutOfMemoryError, PjrtError, RecompileError, RecompileWarning
from torch_pjrt.logs import logger
from torch_pjrt.pjrt import cache, jax_compat
from torch_pjrt.pjrt.buffers import words_for
from torch_pjrt.pjrt.client import NARROW_PLATFORMS, chip
from torch_pjrt.program.evaluate import NUMBER_WORDS, evaluate
from torch_pjrt.program.fingerprint import changes, program_text
from torch_pjrt.program.program import Program

_log = logger("compile")
_lock = threading.Lock()


class Executable:
    """A compiled Program: call(words, *arrays) -> list of arrays; pack(numbers) -> words."""

    __slots__ = ("__weakref__", "call", "checked", "disk_key", "loaded", "pack", "program")

    def __init__(self, program: Program, loaded: Any, disk_key: str):
        outputs = [(s.shape, s.dtype) for s in program.out_specs()]
        if program.checked:
            outputs.append(((), np.dtype(np.int32)))
        self.program = program
        self.loaded = loaded
        self.disk_key = disk_key
        self.pack = words_for(program.number_kinds, chip().platform in NARROW_PLATFORMS)
        self.checked = program.checked
        self.call = jax_compat.make_call(
            loaded, len(program.in_specs) + 1, outputs, chip().device, program.steps[-1][0].row.name
        )

    def serialized(self) -> bytes | None:
        """The executable in the plugin's own format; None if the plugin cannot give it."""
        body = cache.load(self.disk_key)
        if body is not None:
            return body
        try:
            return jax_compat.serialize(self.loaded, chip().device)
        except Exception as error:  # noqa: BLE001 - plugins raise their own types
            _log.warning("cannot serialise an executable: %s", error)
            return None


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a watcher is told of a program: compiled now, or (seconds is None) found in the disk cache."""

    program: Program
    disk_key: str
    where: tuple[str | None, ...]
    stablehlo: str
    hlo: str
    seconds: float | None


watchers: list[
    Callable[[Compiled], None]
] = []  # called in the thread that compiles, with the caller's context variables

_DROPS_BARRIERS = "cse_barrier_expander"  # XLA's name of the pass
XlaOptions = tuple[tuple[str, "str | int | float | bool"], ...]
_compiles_at: collections.Counter[str] = collections.Counter()
_executables: weakref.WeakValueDictionary[Any, Executable | Future[Executable]] = weakref.WeakValueDictionary()


def executable_for(
    program: Program, precision: str, where: Sequence[str | None], xla: XlaOptions = (), *, ahead: bool = False
) -> Executable | Future[Executable]:
    """The executable of a Program, or a Future of one that is being compiled. `where`: the user's line of every step.

    ahead: nobody waits for it yet, and perhaps nobody will: it is compiled apart, and a failure is logged.
    """
    key = (program.key, precision, xla)
    found = _executables.get(key)
    if found is not None:
        counters.cache_hits += 1
        return found
    with _lock:
        found = _executables.get(key)
        if found is None:
            text = program_text(program)
            disk_key = cache.key_of(text, f"{precision} {xla}" if xla else precision)
            executable = _from_disk(program, disk_key)
            if executable is not None:
                counters.disk_hits += 1
                _executables[key] = executable
                if watchers:
                    _tell_of_known(program, precision, disk_key, list(where))
                return executable
            note, pool = (_note_compile_ahead, _pool_ahead()) if ahead else (_note_compile, _pool())
            note(program, where)
            context = contextvars.copy_context()
            future = pool.submit(context.run, _compile, program, precision, disk_key, list(where), xla)
            _executables[key] = found = future
            future.add_done_callback(lambda f: _settle(key, f, ahead))
    return found


def _settle(key: Any, future: Future[Executable], ahead: bool) -> None:
    if future.cancelled():
        return
    error = future.exception()
    if error is None:
        _executables[key] = future.result()
        return
    _executables.pop(key, None)
    if ahead:
        _log.warning("a program could not be compiled ahead, and will be compiled when it is needed: %s", error)


def _note_compile_ahead(program: Program, where: Sequence[str | None]) -> None:
    counters.compiles += 1
    counters.compiles_ahead += 1
    counters.causes.append(f"ahead: {changes(program, where)}")


def _note_compile(program: Program, where: Sequence[str | None]) -> None:
    cause = changes(program, where)
    if forbidden.recompile:
        raise RecompileError(
            f"a program of {len(program.steps)} ops must be compiled while that is forbidden: {cause}",
            where=next((w for w in where if w), None),
            todo="Warm this shape up before torch.pjrt.fail_on(recompile=True), or pad to a shape that was compiled.",
        )
    counters.compiles += 1
    counters.causes.append(cause)
    line = next((w for w in where if w), "an op recorded by autograd")
    _compiles_at[line] += 1
    if _compiles_at[line] == settings.recompile_limit:
        warnings.warn(
            f"{line} has caused {_compiles_at[line]} compiles: its shapes vary. "
            "torch.pjrt.explain_recompiles() says how",
            RecompileWarning,
            stacklevel=3,
        )


def _from_disk(program: Program, key: str) -> Executable | None:
    body = cache.load(key)
    if body is None:
        return None
    try:
        return Executable(program, jax_compat.deserialize(body, chip().device), key)
    except Exception as error:  # noqa: BLE001 - plugins raise their own types; the entry is compiled anew
        cache.reject(key, f"the plugin refused it ({error})")
        return None


def _scopes(program: Program, where: Sequence[str | None]) -> list[str]:
    """A name per step with the user's line."""
    return [f"{t.row.title}@{_place(w)}" for (t, _), w in zip(program.steps, where, strict=True)]


def _tell_of_known(program: Program, precision: str, disk_key: str, where: list[str | None]) -> None:
    """Lower a program that came from disk, for the sake of those who watch."""
    text = lower(program, precision, chip().device, _scopes(program, where)).as_text(debug_info=True)
    for watcher in watchers:
        watcher(Compiled(program, disk_key, tuple(where), text, "", None))


def _compile(
    program: Program, precision: str, disk_key: str, where: list[str | None], xla: XlaOptions = ()
) -> Executable:
    begin = time.perf_counter()
    device = chip().device
    try:
        lowered = lower(program, precision, device, _scopes(program, where))
        compiled = lowered.compile(compiler_options=compiler_options(device.platform, xla))
        _dump(disk_key, lowered, compiled, where)
        loaded = jax_compat.loaded_executable(compiled)
    except PjrtError as error:
        error.args = (f"{error.args[0]}\n  at {_lines(where)}",)
        raise
    except Exception as error:
        raise _refused(program, where, error) from error
    executable = Executable(program, loaded, disk_key)
    counters.compile_seconds += time.perf_counter() - begin
    if watchers:
        texts = lowered.as_text(debug_info=True), compiled.as_text() or ""
        for watcher in watchers:
            watcher(Compiled(program, disk_key, tuple(where), *texts, time.perf_counter() - begin))
    _log.info("compiled %d ops in %.3f s: %s", len(program.steps), time.perf_counter() - begin, _lines(where))
    if cache.folder() is not None:
        _save(disk_key, loaded, device)
    return executable


def compiler_options(platform: str, xla: XlaOptions = ()) -> dict[str, Any]:
    """The user's options of XLA's compiler, and those that the lowerings rely on.

    XLA:CPU drops optimization barriers before it fuses; arrays.computed_first needs them to last until then.
    """
    options = dict(xla)
    if platform == "cpu":
        others = options.get("xla_disable_hlo_passes")
        options["xla_disable_hlo_passes"] = f"{others},{_DROPS_BARRIERS}" if others else _DROPS_BARRIERS
    return options


def lower(
    program: Program, precision: str, device: Any, scopes: Sequence[str] | None = None, platform: str | None = None
) -> Any:
    """A Program lowered to StableHLO for a device, which may be of a chip that is not here.

    scopes: a name per step, found again in the compiler's texts; platform: lower for this one, whatever the device is.
    """
    sharding = jax.sharding.SingleDeviceSharding(device)
    words = sum(NUMBER_WORDS[k] for k in program.number_kinds)
    shapes = [jax.ShapeDtypeStruct((words,), np.uint32, sharding=sharding)]
    shapes += [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding) for s in program.in_specs]
    donate = tuple(i + 1 for i in program.donate)
    chosen = platform or device.platform
    function = evaluate(program, precision_of(precision), scopes, chosen in NARROW_PLATFORMS, chosen)
    function.__name__ = f"program_{len(program.steps)}_ops"
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        jitted = jax.jit(function, donate_argnums=donate, keep_unused=True)
        if platform is None:
            return jitted.lower(*shapes)
        return jitted.trace(*shapes).lower(lowering_platforms=(platform,))


def _dump(key: str, lowered: Any, compiled: Any, where: Sequence[str | None]) -> None:
    """Write what a program was and became where the setting `dump` says: StableHLO, optimised HLO, the lines of its ops."""
    if not settings.dump:
        return
    folder = Path(settings.dump).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "stablehlo.mlir": lowered.as_text(debug_info=True),
        "hlo.txt": compiled.as_text() or "",
        "lines.txt": "".join(f"{i}: {w or 'autograd'}\n" for i, w in enumerate(where)),
    }
    for suffix, text in texts.items():
        (folder / f"{key[:16]}.{suffix}").write_text(text, encoding="utf-8")


def _place(where: str | None) -> str:
    """ "file.py:12" of a line as the user is shown it."""
    return where.split(" in ")[0].replace("\\", "/").split("/")[-1] if where else "autograd"


def _save(key: str, loaded: Any, device: Any) -> None:
    try:
        cache.store(key, jax_compat.serialize(loaded, device))
    except Exception as error:  # noqa: BLE001 - a plugin without serialisation: run without a disk cache
        _log.warning("cannot serialise an executable: %s", error)


def precision_of(name: str) -> Any:
    """What torch.get_float32_matmul_precision() says, as JAX has it."""
    return {"highest": jax.lax.Precision.HIGHEST, "high": jax.lax.Precision.HIGH}.get(name, jax.lax.Precision.DEFAULT)


def _lines(where: Sequence[str | None]) -> str:
    seen = list(dict.fromkeys(w for w in where if w))
    return ", ".join(seen[:3]) + (" ..." if len(seen) > 3 else "") if seen else "an op recorded by autograd"


def _refused(program: Program, where: Sequence[str | None], error: Exception) -> PjrtError:
    names = list(dict.fromkeys(t.row.name for t, _ in program.steps))
    kind: Callable[..., PjrtError] = OutOfMemoryError if "RESOURCE_EXHAUSTED" in str(error) else CompileError
    return kind(
        f"a program of {len(program.steps)} ops ({', '.join(names[:6])}{' ...' if len(names) > 6 else ''}) "
        f"could not be compiled for {chip().platform}",
        where=_lines(where),
        todo='Run under torch.pjrt.eager_mode("debug") to see which op it is.',
        detail=f"{type(error).__name__}: {error}",
    )


def forget() -> None:
    """Drop every executable of this process (the disk cache stays)."""
    with _lock:
        _executables.clear()


@functools.cache
def _pool_ahead() -> ThreadPoolExecutor:
    """As many threads again, so that what is needed now never queues behind what may be needed.

    Python waits at its exit for what has begun, since XLA cannot be interrupted; what has not begun is dropped.
    """
    pool = ThreadPoolExecutor(max_workers=_workers(), thread_name_prefix="torch-pjrt-ahead")
    register = getattr(threading, "_register_atexit", None)  # runs before Python joins threads, as atexit does not
    if register is not None:
        register(functools.partial(pool.shutdown, wait=False, cancel_futures=True))
    return pool


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """The threads that compile (setting compile_threads; 0: one per core, at most 8)."""
    return ThreadPoolExecutor(max_workers=_workers(), thread_name_prefix="torch-pjrt-compile")


def _workers() -> int:
    return settings.compile_threads or min(os.cpu_count() or 1, 8)
