"""Keeps what AOTAutograd traces for later processes, in PyTorch's AOTAutogradCache.

Owns every name of PyTorch's that this takes, nearly all of them private: where one is missing, nothing is kept. Entries lie
in PyTorch's own folder (TORCHINDUCTOR_CACHE_DIR), are pickles as Inductor's are, and go on and off with PyTorch's switch.
cacheable.py says what is kept and under what key, stored.py writes a graph. Called by backend.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torch_pjrt.compile import cacheable, stored
from torch_pjrt.compile.options import Options, parse
from torch_pjrt.compile.present import present
from torch_pjrt.counters import counters
from torch_pjrt.errors import CacheEntryWarning
from torch_pjrt.logs import logger

_log = logger("compile")
_MISSING: str | None = None
try:
    from torch._dynamo.utils import counters as _counted
    from torch._functorch._aot_autograd.autograd_cache import (
        AOTAutogradCache,
        BypassAOTAutogradCache,
        should_use_local_autograd_cache,
        should_use_remote_autograd_cache,
    )
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
    from torch._inductor import codecache
    from torch._inductor.output_code import OutputCode

    for _owner, _name in (
        (AOTAutogradCache, "_get_tmp_dir_for_key"),
        (codecache, "sha256_hash"),
        (torch.compiler.config, "cache_key_tag"),
        (torch._functorch.config, "bundled_autograd_cache"),
        (torch._functorch.config, "force_non_lazy_backward_lowering"),
    ):
        if not hasattr(_owner, _name):
            _MISSING = f"this torch has no {_name}"
except ImportError as _error:
    OutputCode = object  # type: ignore[misc, assignment]
    _MISSING = str(_error)

Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Any]


class Output(OutputCode):  # type: ignore[misc]
    """A graph of AOTAutograd, to call and to keep. kind: "forward", "backward" or "inference"."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __init__(self, graph: torch.fx.GraphModule, kind: str, names: Sequence[str], options: Options):
        super().__init__()
        from torch_pjrt.compile.graph import CompiledGraph

        self._boxed_call = True
        self.kind = kind
        self.names = list(names)
        self.options = options
        self.graph = CompiledGraph(graph, kind, names, options)
        self.lines = list(present.lines or ())

    def __call__(self, inputs: Any) -> Any:
        """AOTAutograd's boxed convention."""
        return self.graph(inputs)

    def prepare_for_serialization(self) -> None:
        """Called by PyTorch before writing."""

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Called by PyTorch after reading."""

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There is none."""

    def __copy__(self) -> Output:
        return self

    def __deepcopy__(self, memo: Any) -> Output:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Raises what PyTorch takes for "do not keep it" where the graph cannot be stored."""
        try:
            body = stored.dumps(self.graph.graph, self.lines)
        except stored.NotStorable as reason:
            _log.info("traces of the %s graph are not kept: it has %s", self.kind, reason)
            raise BypassAOTAutogradCache(str(reason)) from reason
        return {
            "body": body,
            "sha256": hashlib.sha256(body).hexdigest(),
            "kind": self.kind,
            "names": self.names,
            "options": self.options,
            "fingerprint": cacheable.fingerprint(self.options),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Raises, which PyTorch takes for a miss, where the entry is damaged or does not belong to this process."""
        body, options = state["body"], state["options"]
        if hashlib.sha256(body).hexdigest() != state["sha256"]:
            raise ValueError("the stored graph is damaged")
        if state["fingerprint"] != cacheable.fingerprint(options):
            raise ValueError("the stored graph is of another version, device or settings")
        if _asked_for_others(options):
            raise ValueError("the stored graph was compiled with other options")
        from torch_pjrt.compile.backend import prepare

        prepare()
        names = state["names"] if present.names is None else present.names
        self.__init__(stored.loads(body, present.lines), state["kind"], names, options)  # type: ignore[misc]
        if present.lines is None and self.kind != "backward":  # read by Dynamo, or for it, with the whole function
            counters.trace_hits += 1


def _asked_for_others(options: Options) -> bool:
    """Whether Dynamo reads this for a torch.compile with other options: its key is the function's name and line alone."""
    reading = present.lines is None and torch._dynamo.config.caching_precompile
    return reading and present.asked is not None and parse(*present.asked) != options


def kept(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    trace: Callable[[Callable[[Compile], Any], set[str]], Callable[..., Any]],
) -> Callable[..., Any]:
    """The compiled graph, without tracing where an earlier process has. trace(wrap, done) runs AOTAutograd with compilers
    that are wrapped so, and puts into `done` the kinds of graphs that it has compiled."""
    demanded = bool(getattr(torch._functorch.config, "force_autograd_cache", False))  # by torch._dynamo.aot_compile
    reason = _MISSING or _switched_off() or cacheable.why_not(graph, example_inputs)
    if _MISSING is not None or reason is not None and not demanded:
        counters.trace_bypasses += 1
        _log.info("graph traced, and the traces not kept: %s", reason)
        return trace(lambda compiler: compiler, set())
    tag = cacheable.fingerprint(options) + cacheable.state(example_inputs)
    if reason is not None:
        tag = uuid.uuid4().hex  # it is written for the caller, and never found again
    done: set[str] = set()
    bypassed = _counted["aot_autograd"]["autograd_cache_bypass"]
    try:
        with _ours(tag):
            result = trace(lambda compiler: SerializableAOTDispatchCompiler(Output, compiler), done)
    except Exception as error:
        if demanded or not done & {"inference", "backward"}:
            raise
        _log.warning(
            "the traces of a graph could not be kept: %s", error
        )  # all of it was compiled, so that is the cause
        return trace(lambda compiler: compiler, set())
    if not done:
        counters.trace_hits += 1
    elif _counted["aot_autograd"]["autograd_cache_bypass"] > bypassed:
        counters.trace_bypasses += 1
    else:
        counters.trace_misses += 1
    return result


def _switched_off() -> str | None:
    on = should_use_local_autograd_cache() or should_use_remote_autograd_cache()
    return None if on else "PyTorch's AOTAutogradCache is switched off"


@contextlib.contextmanager
def _ours(tag: str) -> Iterator[None]:
    """PyTorch's cache, for one of our graphs: our part of the key, whole results in an entry, nothing of Inductor's code
    generators (which would be imported to be asked for their versions), damaged entries dropped."""
    functorch: Any = torch._functorch.config
    compiler: Any = torch.compiler.config
    name = "torch_pjrt:" + hashlib.sha256(tag.encode()).hexdigest()
    with contextlib.ExitStack() as stack:
        stack.enter_context(functorch.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True))
        stack.enter_context(compiler.patch(cache_key_tag=compiler.cache_key_tag + name))
        stack.enter_context(_replaced(AOTAutogradCache, "_get_tmp_dir_for_key", _checking))
        stack.enter_context(_replaced(codecache, "init_backend_registration", _left_out))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, by: Callable[[Any], Any]) -> Iterator[None]:
    """by(the original) in place of an attribute, where there is one. Other threads meanwhile get the original's results."""
    if name not in vars(owner):
        yield
        return
    original = vars(owner)[name]
    setattr(owner, name, by(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _left_out(original: Callable[[], None]) -> Callable[[], None]:
    return lambda: None if present.lines is not None else original()


def _checking(original: Any) -> Any:
    def folder_of(cls: Any, key: str) -> str:
        path = str(original.__func__(cls, key))
        return path if present.lines is None or _sound(pathlib.Path(path)) else path + ".damaged"

    return classmethod(folder_of)


def _sound(folder: pathlib.Path) -> bool:
    """Drop entries whose contents are not those that their names say; False where one cannot be dropped."""
    length = len(codecache.sha256_hash(b""))
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.name.startswith(".") or len(path.name) != length:
            continue
        with contextlib.suppress(FileNotFoundError):
            if codecache.sha256_hash(path.read_bytes()) == path.name:
                continue
            text = f"entry {path.name[:16]} of PyTorch's AOTAutogradCache is damaged: dropped, and traced anew"
            warnings.warn(text, CacheEntryWarning, stacklevel=2)
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError:
                return False
    return True
