"""torch_pjrt.export: a model as a folder of portable StableHLO, weights and a manifest. No pickle in it.

    program.bin          jax.export's serialisation, for cpu, tpu, cuda and rocm at once
    weights.safetensors  parameters, buffers and constants, by name
    manifest.json        inputs, outputs, weights, versions, and the SHA-256 of the other files

The program is a function (seed, *weights, *inputs) -> outputs, in the manifest's order. export/read.py runs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from jax import lax
from jax import numpy as jnp

from torch_pjrt._version import __version__
from torch_pjrt.errors import InvalidOperandError, MissingPluginError, PjrtError
from torch_pjrt.export.dynamic import Dim, exported_program, is_dynamic
from torch_pjrt.export.formulas import Scaled
from torch_pjrt.export.samples import trace_samples
from torch_pjrt.export.trace import Input, Read, Traced, reads_of, trace
from torch_pjrt.pjrt import jax_compat
from torch_pjrt.pjrt.compiler import precision_of
from torch_pjrt.program.access import read
from torch_pjrt.program.evaluate import run_steps
from torch_pjrt.tensor.transfer import host_tensor

FORMAT = "torch-pjrt export 1"
PLATFORMS = ("cpu", "tpu", "cuda", "rocm")
_KINDS: dict[str, Any] = {"i": np.int64, "f": np.float64, "c": np.complex128, "b": np.bool_}


def export(
    model: Any,
    args: Sequence[Any] | None,
    path: str | Path,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    platforms: Sequence[str] = PLATFORMS,
) -> Path:
    """Write a model (a module, a function, or a torch.export.ExportedProgram) as a folder; gives its path.

    The model is recorded as it is (call model.eval() first for inference), for the shapes of `args`, without gradients. It may
    not write to its parameters, buffers or arguments. Random numbers depend on the seed that the loaded program is given.

    dynamic_shapes: which sizes stay open, as torch.export takes it; a text in the place of a Dim is a Dim of that name. An
    ExportedProgram brings its own open sizes (args may then be None).
    Raises InvalidOperandError for what cannot be exported, with the line where there is one.
    """
    need_packages()
    if dynamic_shapes is not None or is_dynamic(model):
        samples = trace_samples(exported_program(model, args or (), kwargs, dynamic_shapes), dynamic_shapes)
        *wider, last = samples.ranges()
        for dims in wider:
            with contextlib.suppress(InvalidOperandError):
                return _write(*samples.united(dims), dims, path, platforms)
        return _write(*samples.united(last), last, path, platforms)
    if args is None and isinstance(model, torch.export.ExportedProgram):
        args, kwargs = model.example_inputs
    traced = trace(model, args or (), kwargs)
    return _write(traced, reads_of(traced), [], path, platforms)


def _write(traced: Traced, reads: list[Read], dims: list[Dim], path: str | Path, platforms: Sequence[str]) -> Path:
    _refuse_writes(traced)
    weights, names = _weights(traced)
    arguments = [i for i in traced.inputs if i.kind == "argument"]
    order = [names.get(k, -1) for k in range(len(traced.inputs))]
    shapes = [jax.ShapeDtypeStruct((2,), np.uint32)]
    shapes += [_shape(traced, k) for k, i in enumerate(traced.inputs) if k in names]
    shapes += [_shape(traced, k) for k, i in enumerate(traced.inputs) if i.kind == "argument"]
    function = _function(traced, reads, order)
    with jax.enable_x64(True), _explained(traced, dims):
        exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=tuple(platforms))(*shapes)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    from safetensors.torch import save_file

    save_file(weights, str(folder / "weights.safetensors"))
    (folder / "program.bin").write_bytes(bytes(exported.serialize()))
    manifest = {
        "format": FORMAT,
        "weights": list(weights),
        "inputs": [{"shape": _sizes(i.size), "dtype": _name(i.dtype)} for i in arguments],
        "outputs": [{"shape": _sizes(place[0]), "dtype": _name(place[3])} for _, place in traced.results],
        "dims": {d.name: {"minimum": d.minimum, "maximum": d.maximum, "example": d.example} for d in dims},
        "arguments": traced.in_tree,
        "result": traced.out_tree,
        "draws_random_numbers": bool(traced.random),
        "platforms": list(platforms),
        "versions": {
            "torch_pjrt": __version__,
            "torch": torch.__version__,
            "jax": jax.__version__,
            "jaxlib": jax_compat.jaxlib_version(),
            "calling_convention": exported.calling_convention_version,
        },
        "sha256": {name: digest(folder / name) for name in ("program.bin", "weights.safetensors")},
    }
    _write_atomically(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")
    return folder


def need_packages() -> None:
    """Raise MissingPluginError unless what writing and reading takes is installed."""
    missing = [name for name in ("flatbuffers", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPluginError(f"export needs {' and '.join(missing)}", todo='pip install "torch-pjrt[export]"')


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_atomically(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as out:
        out.write(text)
    Path(out.name).replace(path)


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _shape(traced: Traced, position: int) -> jax.ShapeDtypeStruct:
    spec = traced.program.in_specs[position]
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype)


def _refuse_writes(traced: Traced) -> None:
    if traced.writes:
        names = [traced.inputs[k].name for k, _ in traced.writes]
        raise InvalidOperandError(
            f"the model writes to {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}; "
            "an exported program is a pure function",
            todo="Call model.eval() first, or return the new values.",
        )


def _weights(traced: Traced) -> tuple[dict[str, torch.Tensor], dict[int, int]]:
    """What goes to weights.safetensors (only what the program reads), and each one's place among the program's inputs."""
    used = {v for _, operands in traced.program.steps for v in operands} | set(traced.program.outputs)
    weights: dict[str, torch.Tensor] = {}
    places: dict[int, int] = {}
    for k, item in enumerate(traced.inputs):
        if item.kind == "argument" or k not in used:
            continue
        places[k] = len(weights)
        weights[item.name] = _contents(item)
    return weights, places


def _contents(item: Input) -> torch.Tensor:
    source = item.source
    if not isinstance(source, torch.Tensor):
        return host_tensor(np.asarray(source))
    if source.device.type == "meta":
        raise InvalidOperandError(
            f"{item.name} is on the meta device and has no values to export", todo="Load the weights first."
        )
    return source.detach().cpu().contiguous().clone()


@contextlib.contextmanager
def _explained(traced: Traced, dims: list[Dim]) -> Iterator[None]:
    """A row that needs a number where a size is open raises what JAX raises: said in our words, with the user's line."""
    try:
        yield
    except Exception as error:
        if not dims or isinstance(error, PjrtError):
            raise
        prefix = "in the step "
        step = next((n.removeprefix(prefix) for n in getattr(error, "__notes__", ()) if n.startswith(prefix)), "")
        raise InvalidOperandError(
            f"{step.split('@')[0] or 'the program'} cannot be lowered while {', '.join(d.name for d in dims)} stay open",
            where=traced.where(step),
            todo="Export this model without dynamic_shapes, once per size; or give the dims a narrower range.",
            detail=f"{type(error).__name__}: {error}",
        ) from error


def _sizes(shape: Sequence[Any]) -> list[int | str]:
    """Numbers, and formulas as text."""
    return [n if isinstance(n, int) else str(n) for n in shape]


def _function(traced: Traced, reads: list[Read], order: list[int]) -> Callable[..., Any]:
    """(seed, *weights, *inputs) -> outputs as torch sees them. `order`: per input of the Program its weight, -1 otherwise."""
    count = sum(o >= 0 for o in order)
    kinds = [t.number_kinds for t, _ in traced.program.steps]
    precision = precision_of(torch.get_float32_matmul_precision())

    def run(seed: Any, *arrays: Any) -> tuple[Any, ...]:
        supply = iter(arrays[count:])
        values = [
            arrays[o] if o >= 0 else next(supply) if i.kind == "argument" else np.zeros(s.shape, s.dtype)
            for o, i, s in zip(order, traced.inputs, traced.program.in_specs, strict=True)
        ]
        numbers: list[Any] = []
        for own, letters in zip(traced.numbers, kinds, strict=True):
            for number, kind in zip(own, letters, strict=True):
                numbers.append(_seeded(seed, number[1]) if kind == "s" else _number(number, kind))
        outputs, _ = run_steps(traced.program, numbers, values, precision, traced.scopes())
        return tuple(read(outputs[p], plan, [_number(s, "i") for s in starts]) for p, plan, starts in reads)

    run.__name__ = "exported"
    return run


def _number(number: Any, kind: str) -> Any:
    """A 0-d operand: a constant, or computed from the sizes of the arguments."""
    if isinstance(number, Scaled):
        power = lax.pow(_number(number.size, "f"), np.float64(number.power))
        return lax.add(np.float64(number.start), lax.mul(np.float64(number.factor), power))
    if isinstance(number, (bool, int, float, complex, np.generic)):
        return np.asarray(number, _KINDS[kind])
    return jnp.asarray(number, _KINDS[kind])  # a symbolic size


def _seeded(seed: Any, offset: Any) -> Any:
    """The generator's state of a step: the seed's two words and the offset's."""
    if not isinstance(offset, int):
        return lax.concatenate([seed, lax.bitcast_convert_type(_number(offset, "i"), np.uint32)], 0)
    words = np.array([offset & 0xFFFFFFFF, offset >> 32], np.uint32)
    return lax.concatenate([seed, words], 0)
