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
from torch_pjrt.export.tree import put_together, take_apart
from torch_pjrt.export.write import FORMAT, digest, need_packages
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
        self._run = jax.jit(exported.call)
        self.weights: dict[str, torch.Tensor] = {}
        with safe_open(str(folder / "weights.safetensors"), framework="pt") as file:
            for name in manifest["weights"]:
                self.weights[name] = file.get_tensor(name).to(device())
        self._arrays = [to_jax(w) for w in self.weights.values()]

    def __call__(self, *args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        """Run. seed: of its random numbers; without it torch.initial_seed() of the device. Raises InvalidOperandError for other
        arguments than were exported."""
        given: list[torch.Tensor] = []
        tree = take_apart([list(args), kwargs], given)
        if tree != self.manifest["arguments"]:
            raise InvalidOperandError(
                f"the program was exported for arguments {self.manifest['arguments']}, got {tree}",
                todo="Call it with the same structure; numbers and flags are part of the program.",
            )
        inputs = []
        for position, (tensor, want) in enumerate(zip(given, self.manifest["inputs"], strict=True)):
            have = (list(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            if have != (want["shape"], want["dtype"]):
                raise InvalidOperandError(
                    f"tensor {position} is {have[1]}{have[0]}; the program was exported for {want['dtype']}{want['shape']}",
                    todo="Export again for this size: an exported program has fixed sizes.",
                )
            inputs.append(to_jax(tensor.detach().to(device())))
        start = _default_seed() if seed is None else seed
        words = np.array([start & 0xFFFFFFFF, start >> 32 & 0xFFFFFFFF], np.uint32)
        with jax.enable_x64(True):
            results = self._run(words, *self._arrays, *inputs)
        return put_together(self.manifest["result"], [from_jax(r) for r in results])

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


def _default_seed() -> int:
    from torch_pjrt.tensor.random import default_state, take

    seed, offset = take(default_state(), 4)
    return (seed + offset * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
