"""Runs a folder that torch_pjrt.export wrote with JAX alone: python run_with_jax.py FOLDER [DIM=SIZE ...]. No torch."""

import json
import pathlib
import sys

import jax
import numpy as np
from safetensors.flax import load_file

jax.config.update("jax_enable_x64", True)
folder = pathlib.Path(sys.argv[1])
manifest = json.loads((folder / "manifest.json").read_text())
program = jax.export.deserialize(bytearray((folder / "program.bin").read_bytes()))
weights = load_file(folder / "weights.safetensors")

sizes = {name: dim["example"] for name, dim in manifest["dims"].items()}
sizes.update((name, int(size)) for name, _, size in (each.partition("=") for each in sys.argv[2:]))
seed, shapes = np.array([0, 0], np.uint32), [[sizes.get(n, n) for n in each["shape"]] for each in manifest["inputs"]]
kinds = [jax.dtypes.canonicalize_dtype(each["dtype"]) for each in manifest["inputs"]]
inputs = [np.ones(shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
results = jax.jit(program.call)(seed, *[weights[name] for name in manifest["weights"]], *inputs)
for result in results:
    print(result.dtype, result.shape, float(abs(result).sum()))
