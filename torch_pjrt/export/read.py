"""torch_pjrt.load: runs a folder that torch_pjrt.export wrote, on whatever chip this process drives.

Checks the files against the manifest first. Nothing in the folder is executed but the StableHLO.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.tree import call_of, call_text, put_together, take_apart
from torch_pjrt.export.write import FORMAT, digest, need_packages
from torch_pjrt.pjrt.client import chip
from torch_pjrt.pjrt.compiler import compiler_options
from torch_pjrt.tensor.runtime import device, runtime
from torch_pjrt.tensor.transfer import from_jax, to_jax


class Loaded:
    """A loaded program: call it as the model was called. Tensors may be on the device or the CPU; results are on the device."""

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        from safetensors import safe_open

        runtime()
        self.manifest = manifest
        self.folder = folder
        exported = jax.export.deserialize(bytearray((folder / "program.bin").read_bytes()))
        self._run = jax.jit(exported.call, compiler_options=compiler_options(chip().platform))
        self.weights: dict[str, torch.Tensor] = {}
        with safe_open(str(folder / "weights.safetensors"), framework="pt") as file:
            for name in manifest["weights"]:
                self.weights[name] = file.get_tensor(name).to(device())
        self._arrays = [to_jax(w) for w in self.weights.values()]

    def __call__(self, *args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        """Run. seed: of its random numbers; without it torch.initial_seed() of the device. Raises InvalidOperandError for other
        arguments than were exported."""
        given: list[torch.Tensor] = []
        tree = take_apart(call_of(args, kwargs), given)
        if tree != self.manifest["arguments"]:
            raise InvalidOperandError(
                f"the program was exported for arguments {call_text(self.manifest['arguments'])}, got {call_text(tree)}",
                todo="Call it with the same structure; numbers and flags are part of the program.",
            )
        sizes: dict[str, int] = {}
        for position, (tensor, want) in enumerate(zip(given, self.manifest["inputs"], strict=True)):
            self._check(position, tensor, want, sizes)
        inputs = [to_jax(tensor.detach().to(device())) for tensor in given]
        start = _default_seed() if seed is None else seed
        words = np.array([start & 0xFFFFFFFF, start >> 32 & 0xFFFFFFFF], np.uint32)
        with jax.enable_x64(True):
            results = self._run(words, *self._arrays, *inputs)
        return put_together(self.manifest["result"], [from_jax(r) for r in results])

    def _check(self, position: int, tensor: torch.Tensor, want: dict[str, Any], sizes: dict[str, int]) -> None:
        """Raise unless a tensor is what the manifest says; `sizes` learns what the open dims are in this call."""
        shape, dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        dims = self.manifest.get("dims", {})
        fits = dtype == want["dtype"] and len(shape) == len(want["shape"])
        for size, name in zip(shape, want["shape"], strict=False) if fits else ():
            if name in dims:
                low, high = dims[name]["minimum"], dims[name]["maximum"]
                fits &= sizes.setdefault(name, size) == size and low <= size and (high is None or size <= high)
            elif isinstance(name, int):
                fits &= size == name
        if not fits:
            wanted = f"{want['dtype']}[{', '.join(map(str, want['shape']))}]"
            given = [f"{n} {_range(d)}{f', here {sizes[n]}' if n in sizes else ''}" for n, d in dims.items()]
            raise InvalidOperandError(
                f"tensor {position} is {dtype}{shape}; the program was exported for {wanted}"
                + (f" ({'; '.join(given)})" if given else ""),
                todo=_remedy(dtype, want, dims),
            )

    def __repr__(self) -> str:
        return f"<program from {self.folder}, {len(self.weights)} weights, {len(self.manifest['inputs'])} inputs>"


def load(path: str | Path) -> Loaded:
    """The program of a folder. Raises InvalidOperandError when it is not one, or when a file is not what was written."""
    need_packages()
    folder = Path(path)
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        found = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidOperandError(
            f"{folder} is not an exported program: {error}", todo="Give a folder of torch_pjrt.export."
        ) from error
    if found != FORMAT:
        raise InvalidOperandError(f"{folder} has the format {found!r}, this version reads {FORMAT!r}")
    for name, wanted in manifest["sha256"].items():
        if name not in ("program.bin", "weights.safetensors") or digest(folder / name) != wanted:
            raise InvalidOperandError(
                f"{folder / name} is damaged: its hash is not the manifest's", todo="Copy or export it again."
            )
    return Loaded(folder, manifest)


def _remedy(dtype: str, want: dict[str, Any], dims: dict[str, Any]) -> str:
    if dtype != want["dtype"]:
        return f"Convert it: .to(torch.{want['dtype']})."
    if dims:
        return "Give one size to dims of one name, within its range; the others are fixed."
    return "Export for this size, or with dynamic_shapes: a program exported without them has fixed sizes."


def _range(dim: dict[str, Any]) -> str:
    return f"from {dim['minimum']}" + (f" to {dim['maximum']}" if dim["maximum"] is not None else "")


def _default_seed() -> int:
    from torch_pjrt.tensor.random import default_state, take

    seed, offset = take(default_state(), 4)
    return (seed + offset * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
