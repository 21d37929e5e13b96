"""Runs lowering rows directly on CPU tensors, without the device, and compares them with torch's CPU kernels.

    python -m torch_pjrt.testing.rows add mul nn.functional.conv2d      OpInfo entries, forward and backward
    python -m torch_pjrt.testing.rows --dtype bfloat16 add

Every ATen overload that an OpInfo sample reaches (backward too) is looked up in the table; those with a row are run and
compared; those without are listed as missing.
"""

from __future__ import annotations

import argparse
import collections
import sys
import traceback
from typing import Any

import jax
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_pjrt.dispatch.bind import Binder
from torch_pjrt.ops.dtypes import FROM_NUMPY, TO_NUMPY
from torch_pjrt.ops.registry import load_rows
from torch_pjrt.ops.schema import functional_twin, schema_of
from torch_pjrt.program.evaluate import evaluate_step
from torch_pjrt.program.program import spec
from torch_pjrt.tensor.layout import aval_of


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A CPU tensor's values as a NumPy array of its twin dtype."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    dtype = TO_NUMPY[tensor.dtype]
    if dtype.kind == "V" or dtype.name.startswith(("bfloat16", "float8")):
        raw = tensor.view(torch.uint8 if dtype.itemsize == 1 else torch.int16).numpy()
        return raw.view(dtype).copy()
    return tensor.numpy().copy()


def to_torch(array: Any) -> torch.Tensor:
    """The reverse of to_numpy."""
    array = np.array(array)
    dtype = FROM_NUMPY[array.dtype]
    if dtype in (torch.bfloat16,) or array.dtype.name.startswith("float8"):
        raw = array.view(np.uint8 if array.dtype.itemsize == 1 else np.int16)
        return torch.from_numpy(raw.copy()).view(dtype)
    return torch.from_numpy(array.copy())


def run_row(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Run the row of a functional overload on CPU tensors; results in logical order."""
    rows = load_rows()
    store: dict[int, np.ndarray[Any, Any]] = {}

    def pose(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if x.dim() == 0 and x.device.type == "cpu" and not getattr(x, "_as_device", True):
                return x
            meta = torch.empty_strided(x.size(), _dense(x), dtype=x.dtype, device="meta")
            store[id(meta)] = to_numpy(x)
            keep.append(meta)
            return meta
        if isinstance(x, (list, tuple)):
            return [pose(y) for y in x]
        return x

    keep: list[torch.Tensor] = []

    def operand_of(t: torch.Tensor) -> Any:
        array = store[id(t)]
        size = tuple(t.size())
        fake = torch.empty(size, device="meta")
        aval, starts = aval_of(spec(size, array.dtype), size, tuple(fake.stride()), 0, t.dtype)
        return array, aval, starts

    name = f"{op._schema.name}.{op._overloadname}"
    binder = Binder(op, rows[name], operand_of)
    posed = tuple(pose(a) for a in args)
    template, values, numbers = binder.bind(posed, {k: pose(v) for k, v in kwargs.items()})
    with jax.enable_x64(True):
        kinds = {"i": np.int64, "f": np.float64, "c": np.complex128, "b": np.bool_}
        traced = [kinds[k](n) for k, n in zip(template.number_kinds, numbers, strict=False)]
        if template.row.random:
            traced.append(np.array([1234, 0, 0, 0], np.uint32))

        def run(numbers: Any, arrays: Any) -> Any:
            results, bad = evaluate_step(template, arrays, list(numbers))
            return results

        results = jax.jit(run)(traced, list(values))
        host = [np.asarray(r) for r in results]
    out = []
    for o, r in zip(template.outs, host, strict=True):
        out.append(to_torch(r if o.perm is None else np.transpose(r, np.argsort(o.perm))))
    return out


def _cut(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a dynamic row, cut to its count (the last of them) where they share the padded leading size."""
    *padded, count = results
    bound = padded[0].shape[:1]
    return [r[: int(count)] if r.shape[:1] == bound else r for r in padded]


def _dense(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(torch.empty_like(x, device="meta").stride())


class Recorder(TorchDispatchMode):
    """Checks each functional overload with a row against the CPU's answer while a program runs."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype
        self.failures: list[str] = []
        self.checked: collections.Counter[str] = collections.Counter()
        self.missing: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        twin = functional_twin(func)
        name = f"{(twin or func)._schema.name}.{(twin or func)._overloadname}"
        snapshot_args, snapshot_kwargs = torch.utils._pytree.tree_map(
            lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, (args, kwargs)
        )
        result = func(*args, **kwargs)
        schema = schema_of(func)
        if schema.is_view or name.startswith(("aten::detach", "aten::lift")):
            return result
        row = load_rows().get(name)
        if row is None:
            self.missing[name] += 1
            return result
        if twin is None or twin is not func or row.random or "empty" in name:
            return result
        self.checked[name] += 1
        try:
            got = run_row(func, snapshot_args, snapshot_kwargs)
            if row.dynamic:
                got = _cut(got)
            want = [r for r in (result if isinstance(result, (tuple, list)) else [result]) if r is not None]
            for g, w in zip(got, want, strict=True):
                self._compare(name, g, w.detach(), snapshot_args, snapshot_kwargs)
        except Exception as error:  # noqa: BLE001 - a report, every failure is listed
            text = traceback.format_exc(limit=-3) if "--trace" in sys.argv else ""
            self.failures.append(
                f"{name}: {type(error).__name__}: {str(error)[:600]}\n    {_brief(snapshot_args, snapshot_kwargs)} {text}"
            )
        return result

    def _compare(self, name: str, got: torch.Tensor, want: torch.Tensor, args: Any, kwargs: Any) -> None:
        loose = {torch.float32: (2e-5, 2e-5), torch.bfloat16: (1.6e-2, 1e-2), torch.float16: (2e-3, 2e-3)}
        rtol, atol = loose.get(want.dtype, (1e-7, 1e-7) if want.dtype == torch.float64 else (2e-5, 2e-5))
        torch.testing.assert_close(got, want.resolve_conj(), rtol=rtol, atol=atol, equal_nan=True)


def _brief(args: Any, kwargs: Any) -> str:
    def one(x: Any) -> str:
        return f"{str(x.dtype)[6:]}{list(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)

    flat = [[one(y) for y in x] if isinstance(x, (list, tuple)) else one(x) for x in args]
    return f"args={flat} kwargs={ {k: one(v) for k, v in kwargs.items()} }"


def sweep(names: list[str], dtype: torch.dtype, limit: int) -> int:
    """Run OpInfo entries through the recorder; print failures, what was checked and what is missing."""
    from torch.testing._internal.common_methods_invocations import op_db

    failures = 0
    missing: collections.Counter[str] = collections.Counter()
    for info in op_db:
        if names and info.name not in names and info.full_name not in names:
            continue
        if dtype not in info.dtypes:
            continue
        recorder = Recorder(dtype)
        grad = (
            info.supports_autograd and dtype in info.backward_dtypes and (dtype.is_floating_point or dtype.is_complex)
        )
        for index, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=grad)):
            if index >= limit:
                break
            try:
                with recorder:
                    out = info(sample.input, *sample.args, **sample.kwargs)
                    outs = [
                        o
                        for o in torch.utils._pytree.tree_leaves(out)
                        if isinstance(o, torch.Tensor) and o.requires_grad
                    ]
                    if outs:
                        torch.autograd.backward(outs, [torch.ones_like(o) for o in outs])
            except Exception as error:  # noqa: BLE001 - CPU torch itself refused the sample
                print(f"  {info.full_name}: sample {index} raises on CPU: {str(error)[:100]}")
        failures += len(recorder.failures)
        missing.update(recorder.missing)
        checked, failed = sum(recorder.checked.values()), len(recorder.failures)
        print(f"{info.full_name}: {checked} calls checked, {failed} failed, missing {dict(recorder.missing)}")
        for text in recorder.failures[:3]:
            print("   ", text)
    print("missing:", dict(missing.most_common()))
    return failures


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()
    sys.exit(1 if sweep(args.names, getattr(torch, args.dtype), args.limit) else 0)


if __name__ == "__main__":
    main()
