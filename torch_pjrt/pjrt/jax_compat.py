"""JAX's private names, all of them, behind a few functions of ours: the one file that follows JAX's internals.

Owns the C++ call path of an executable and its (de)serialisation. Tried with jax 0.10 and 0.11.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import array as jax_array
from jax._src import core, tree_util
from jax._src.interpreters import pxla
from jax._src.lax import linalg
from jax._src.lib import _jax
from jax._src.lib import xla_client as xc


def loaded_executable(compiled: Any) -> Any:
    """The PJRT executable inside what jax.jit(...).lower(...).compile() gives."""
    return compiled._executable.xla_executable


def serialize(executable: Any, device: Any) -> bytes:
    """An executable as bytes of the plugin's own format."""
    client = device.client
    if hasattr(client, "serialize_executable"):
        return bytes(client.serialize_executable(executable))
    return bytes(executable.serialize())


def deserialize(data: bytes, device: Any) -> Any:
    """The reverse of serialize, loaded on the device. Raises what the plugin raises when the bytes are not its own.

    JAX fills in the addresses of LAPACK's routines when it traces a call of one. A program that comes from disk was
    traced in another process, and would jump to address 0.
    """
    if device.platform == "cpu" and b"lapack_" in data:
        _load_lapack()
    return device.client.deserialize_executable(data, executable_devices=xc.DeviceList((device,)))


@functools.cache
def _load_lapack() -> None:
    """Takes half a second, so only programs that call LAPACK ask for it."""
    linalg.initialize_lapack()


def make_call(
    executable: Any, num_inputs: int, outputs: Sequence[tuple[tuple[int, ...], np.dtype]], device: Any, name: str
) -> Callable[..., list[Any]]:
    """A function (*arrays) -> list of arrays that runs an executable through JAX's C++ fast path.

    Every argument is a jax.Array on the device, or a NumPy array (which is transferred).
    """
    sharding = jax.sharding.SingleDeviceSharding(device)
    out_avals = [core.ShapedArray(shape, dtype) for shape, dtype in outputs]
    _, out_tree = tree_util.tree_flatten([0] * len(outputs))
    shard = pxla.cc_shard_arg

    def first_call(*args: Any) -> tuple[list[Any], Any, bool]:
        buffers = [shard(a, sharding, None) for a in args]
        columns = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        results = [
            jax_array.ArrayImpl(aval, sharding, [column[0]], committed=True, _skip_checks=True)
            for aval, column in zip(out_avals, columns, strict=True)
        ]
        fast = pxla.MeshExecutableFastpathData(
            executable,
            out_tree,
            [sharding] * num_inputs,
            [sharding] * len(outputs),
            out_avals,
            [True] * len(outputs),
            [True] * num_inputs,
            [None] * num_inputs,
            [],
        )
        return results, fast, False

    keys = pxla.JitGlobalCppCacheKeys()
    return _jax.pjit(name, None, first_call, [], [], keys, tree_util.dispatch_registry, shard)  # type: ignore[no-any-return]


def live_bytes(device: Any) -> int:
    """Bytes of all live arrays on the device, as the client counts them."""
    return sum(a.nbytes for a in device.client.live_arrays() if device in a.devices())


def jaxlib_version() -> str:
    """The version of jaxlib, which holds XLA."""
    import jaxlib.version

    return str(jaxlib.version.__version__)


def hlo_costs(lowered: Any) -> dict[str, float]:
    """Flops and bytes of a lowered function as it is written, before any compiler has changed it."""
    module = lowered.compiler_ir("hlo").as_hlo_module()
    return dict(_jax.hlo_module_cost_analysis(jax.local_devices(backend="cpu")[0].client, module))


def serialize_absent(compiled: Any) -> bytes:
    """An executable for a chip that is not here, as bytes of its plugin's own format."""
    return bytes(compiled._executable.xla_executable.serialize())


def compile_absent(module: bytes, devices: Sequence[Any], options: dict[str, Any]) -> Any:
    """Give StableHLO as text to the compiler of devices, which need not be here."""
    from jax._src import compiler
    from jax._src.interpreters import mlir

    place = np.array([[device.id for device in devices]])
    chosen = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=len(devices),
        device_assignment=place,
        env_options_overrides=options or None,
    )
    with mlir.make_ir_context(), mlir.ir.Location.unknown():
        parsed = mlir.ir.Module.parse(module)
        return compiler.backend_compile_and_load(
            devices[0].client, parsed, xc.DeviceList(tuple(devices)), chosen, host_callbacks=[]
        )


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two sizes, of which some may be symbols of jax.export."""
    return core.min_dim(a, b)


def larger(a: Any, b: Any) -> Any:
    """The larger of two sizes, of which some may be symbols of jax.export."""
    return core.max_dim(a, b)
