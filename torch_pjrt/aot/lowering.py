"""From a recorded program to StableHLO for one device or a mesh, its repeated blocks as loops where that is wanted.

Owns the shapes, shardings and donation of the arguments of both forms. aot/build.py compiles what comes out.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from torch_pjrt.aot.mesh import Mesh
from torch_pjrt.export.trace import Traced
from torch_pjrt.pjrt import jax_compat
from torch_pjrt.pjrt.client import NARROW_PLATFORMS
from torch_pjrt.pjrt.compiler import precision_of
from torch_pjrt.program.evaluate import NUMBER_WORDS, decode_numbers, evaluate, evaluate_step, named
from torch_pjrt.program.roll import Plan, roll
from torch_pjrt.program.rolled import Rolled, costs_of_rounds


@dataclass(slots=True)
class Lowered:
    """StableHLO (jax.stages.Lowered), the cost of the program as written, and how many rounds its loops have."""

    stage: Any
    costs: dict[str, float]
    loops: list[tuple[int, int]]  # rounds, ops per round
    arguments: list[list[str]]  # names of the tensors in each argument, after the packed numbers
    argument_bytes: int  # of one device


def plan_of(traced: Traced) -> Plan | None:
    """The loops of a recorded program."""
    outputs = traced.program.outputs
    return roll(traced.program, {i: outputs[o] for i, o in traced.writes})


def lower(
    traced: Traced,
    devices: list[Any],
    precision: str,
    *,
    plan: Plan | None = None,
    mesh: Mesh | None = None,
    platform: str | None = None,
) -> Lowered:
    """Lower for devices (one, or as many as the mesh has). plan: of its loops; platform: lower for that one instead."""
    program, scopes = traced.program, traced.scopes()
    chosen = platform or devices[0].platform
    narrow = chosen in NARROW_PLATFORMS
    place = _Places(devices, mesh)
    words = sum(NUMBER_WORDS[k] for k in program.number_kinds)
    shapes = [jax.ShapeDtypeStruct((words,), np.uint32, sharding=place(()))]
    donated = set(program.donate)
    rolled: Rolled | None = None
    groups: list[tuple[int, ...]] = [(i,) for i in range(len(program.in_specs))]
    function: Any
    if plan is None:
        function = evaluate(program, precision_of(precision), scopes, narrow, chosen)
    else:
        rolled = Rolled(program, plan, precision_of(precision), scopes, narrow)
        groups = rolled.inputs
        function = lambda words, *arrays: rolled(words, *arrays)
    alone = len(groups) if plan is None else len(plan.single_inputs)
    for position, members in enumerate(groups):
        spec, item = program.in_specs[members[0]], traced.inputs[members[0]]
        axes = mesh.dims(item, spec.shape) if mesh is not None else ()
        stacked = position >= alone
        shape = (len(members), *spec.shape) if stacked else spec.shape
        shapes.append(jax.ShapeDtypeStruct(shape, spec.dtype, sharding=place((None, *axes) if stacked else axes)))
    donate = tuple(k + 1 for k, members in enumerate(groups) if set(members) <= donated)
    function.__name__ = f"program_{len(program.steps)}_ops"
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        jitted = jax.jit(function, donate_argnums=donate, keep_unused=True)
        stage = _lowered(jitted, shapes, platform)
        costs = jax_compat.hlo_costs(stage)
        if rolled is not None:
            for name, value in costs_of_rounds(rolled, words, jax_compat.hlo_costs).items():
                costs[name] = costs.get(name, 0.0) + value
    loops = [(loop.rounds, len(loop.groups[0])) for loop in plan.loops] if plan is not None else []
    names = [[traced.inputs[i].name for i in members] for members in groups]
    return Lowered(stage, costs, loops, names, sum(_bytes(s) for s in shapes))


def lower_step(traced: Traced, number: int, device: Any, precision: str, *, platform: str | None = None) -> Any:
    """One step alone as StableHLO (jax.stages.Lowered) for a device, or for a platform instead."""
    template = traced.program.steps[number][0]
    chosen = platform or device.platform
    narrow = chosen in NARROW_PLATFORMS
    place = _Places([device], None)
    words = sum(NUMBER_WORDS[k] for k in template.number_kinds)
    shapes = [jax.ShapeDtypeStruct((words,), np.uint32, sharding=place(()))]
    shapes += [jax.ShapeDtypeStruct(a.spec.shape, a.spec.dtype, sharding=place(())) for a in template.avals]

    def step(words: Any, *arrays: Any) -> Any:
        numbers = decode_numbers(words, template.number_kinds, narrow)
        with named(traced.scope(number)):
            return evaluate_step(template, arrays, numbers, precision_of(precision), chosen)

    with jax.enable_x64(True):
        return _lowered(jax.jit(step, keep_unused=True), shapes, platform)


def _lowered(jitted: Any, shapes: list[Any], platform: str | None) -> Any:
    if platform is None:
        return jitted.lower(*shapes)
    return jitted.trace(*shapes).lower(lowering_platforms=(platform,))


def _bytes(shape: jax.ShapeDtypeStruct) -> int:
    """Of the part of an argument that one device has."""
    assert shape.sharding is not None
    return math.prod(shape.sharding.shard_shape(shape.shape)) * np.dtype(shape.dtype).itemsize


class _Places:
    """Shardings by axes, on one device or a mesh."""

    def __init__(self, devices: list[Any], mesh: Mesh | None):
        self.device = devices[0]
        self.mesh = None
        if mesh is not None:
            shape = tuple(mesh.axes.values())
            self.mesh = jax.sharding.Mesh(np.array(devices[: mesh.size], object).reshape(shape), tuple(mesh.axes))

    def __call__(self, axes: Any) -> Any:
        if self.mesh is None:
            return jax.sharding.SingleDeviceSharding(self.device)
        return jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*axes))
