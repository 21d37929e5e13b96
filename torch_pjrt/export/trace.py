"""A model and its arguments as one Program, without computing anything and without its weights ever being on the device.

Owns stand-ins (tensors of the device with a shape and no value), what each input of the Program is, and which line of the
user's code each step comes from, backward steps included. Serves export/ and aot/; the steps are recorded by the same
kernels as eager ones (compile/capture.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.compile.capture import Captured, capture
from torch_pjrt.dispatch.lines import Line, show
from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.tree import Tree, call_of, put_together, take_apart
from torch_pjrt.ops.dtypes import TO_NUMPY
from torch_pjrt.program.program import Program, spec
from torch_pjrt.tensor.layout import aval_of, contiguous_strides
from torch_pjrt.tensor.runtime import runtime
from torch_pjrt.tensor.storage import READY, Value, device, new_storage, tensor_over

Place = tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]
Read = tuple[int, Any, tuple[Any, ...]]  # position among the Program's outputs, the access plan, its starts


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a Program. kind: parameter, buffer, state (of an optimizer), argument or constant; `source` holds its value,
    a tensor or a device array, where there is one."""

    kind: str
    name: str
    size: tuple[int, ...]
    dtype: torch.dtype | None
    source: Any = None


@dataclass(frozen=True, slots=True)
class Traced:
    """A Program over whole, row-major inputs, and what its numbers, inputs and outputs mean.

    numbers: per step, in the Program's order; random: steps whose last number is (0, words drawn before it);
    results: (position in the Program's outputs, how the tensor lies in that payload); writes: (input, output) positions;
    """

    program: Program
    numbers: list[tuple[Any, ...]]
    random: list[int]
    inputs: list[Input]
    results: list[tuple[int, Place]]
    writes: list[tuple[int, int]]
    in_tree: Tree
    out_tree: Tree
    lines: list[Line]
    phases: list[str]

    def scopes(self) -> list[str]:
        """A short name per step, with the user's line, for the compiler's texts: "mm@model.py:12"."""
        return [self.scope(i) for i in range(len(self.program.steps))]

    def scope(self, step: int) -> str:
        name = self.program.steps[step][0].row.title
        line = show(self.lines[step])
        place = line.split(" in ")[0].replace("\\", "/").split("/")[-1] if line else self.phases[step]
        return f"{name}@{place}"

    def where(self, scope: str) -> str | None:
        """The user's line ("file:12 in forward") behind a scope that a compiler's text mentions."""
        step = next((i for i, name in enumerate(self.scopes()) if name == scope), None)
        return None if step is None else show(self.lines[step])


class _Steps(list[Any]):
    """Records, with each step, the user's line; for a backward step, that of the forward step whose gradient it is.

    Autograd gives the node of an operator its sequence number just before the operator's kernel runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forward: dict[int, Line] = {}
        self.phase = "forward"
        self.phases: list[str] = []

    def append(self, step: Any) -> None:
        """Take a step with a better line."""
        node = torch._C._current_autograd_node()
        if node is not None:
            step = (*step[:4], self.forward.get(node._sequence_nr()))
            self.phases.append("backward")
        elif self.phase == "forward":
            self.forward[torch._C._autograd._get_sequence_nr() - 1] = step[4]
            self.phases.append("forward")
        else:
            step = (*step[:4], None)
            self.phases.append(self.phase)
        super().append(step)


@dataclass(slots=True)
class _Parts:
    """The tensors of a model that become inputs, and how to call it with others in their places."""

    model: Callable[..., Any]
    names: list[str] | None = None
    inputs: list[Input] = field(default_factory=list)
    trainable: list[int] = field(default_factory=list)

    def with_tensors(self, own: Sequence[torch.Tensor], work: Callable[[Callable[..., Any]], Any]) -> Any:
        """work(model), while the model has other tensors. A backward belongs inside: checkpoints call the model again."""
        if self.names is None:
            return work(self.model)
        named = {f"model.{name}": tensor for name, tensor in zip(self.names, own, strict=True)}
        return torch.func.functional_call(_Inside(self.model, work), named, ())


class _Inside(torch.nn.Module):
    """Does its work with a model that is a part of it."""

    def __init__(self, model: Any, work: Callable[[Callable[..., Any]], Any]) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self._work = work

    def forward(self) -> Any:
        return self._work(self.model)


def stand_in(size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A row-major device tensor of which only shape and dtype exist: good inside a capture only."""
    shape = tuple(size)
    value = Value(spec(shape, TO_NUMPY[dtype]), READY)
    return tensor_over(new_storage(value, value.spec.nbytes), shape, contiguous_strides(shape), 0, dtype)


def trace(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
) -> Traced:
    """Record model(*args, **kwargs); with `train`, also the loss, its backward and a step of the optimizer.

    `model` is a module (on any device, meta included) or a function. Tensors in args may be on any device: only shapes and
    dtypes are taken. Raises HostReadError, with the line, where the model reads a value on the host.
    """
    runtime()
    parts = _parts(model)
    given: list[torch.Tensor] = []
    in_tree = take_apart(call_of(args, kwargs), given)
    inputs = list(parts.inputs)
    first = len(inputs)
    inputs += [Input("argument", f"argument.{i}", tuple(t.shape), t.dtype) for i, t in enumerate(given)]
    steps = _Steps()
    trees: list[Tree] = []
    make = (optimizer or _adamw) if train else None
    states = _states(make, inputs, parts.trainable) if make is not None else []
    inputs += [s[2] for s in states]

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        own, arguments = tensors[:first], tensors[first : first + len(given)]
        call_args, call_kwargs = put_together(in_tree, arguments)
        if make is None:
            with torch.no_grad(), _said_to_compile():
                result = parts.with_tensors(own, lambda call: call(*call_args, **call_kwargs))
        else:
            result = _train(parts, own, call_args, call_kwargs, loss or default_loss, steps)
            _step(make, own, parts.trainable, states, tensors[first + len(given) :], steps)
        found: list[torch.Tensor] = []
        trees.append(take_apart(result, found, "the result"))
        return found

    stand_ins = [stand_in(i.size, i.dtype) for i in inputs if i.dtype is not None]
    with torch.autograd.set_multithreading_enabled(False):
        captured = capture(run, stand_ins, steps)
    return _assemble(captured, inputs, in_tree, trees[0], steps.phases)


def reads_of(traced: Traced) -> list[Read]:
    """How each result is read from the Program's outputs."""
    specs = traced.program.out_specs()
    found = []
    for position, place in traced.results:
        aval, starts = aval_of(specs[position], *place)
        found.append((position, aval.plan, starts))
    return found


def default_loss(result: Any) -> torch.Tensor:
    """The `loss` of a result that has one; a result of one number; else the mean square of all floating tensors."""
    found = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    if isinstance(found, torch.Tensor):
        return found
    tensors = [
        t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.is_floating_point()
    ]
    if not tensors:
        raise InvalidOperandError(
            "the model gives no floating tensor to take a loss of", todo="Give loss=function of its result."
        )
    if len(tensors) == 1 and tensors[0].numel() == 1:
        return tensors[0]
    return torch.stack([t.float().square().mean() for t in tensors]).sum()


def _adamw(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def _parts(model: Any) -> _Parts:
    if isinstance(model, torch.export.ExportedProgram):
        model = _unbound(model)
    if not isinstance(model, torch.nn.Module):
        return _Parts(model)
    parts = _Parts(model, [])
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts.trainable.append(len(parts.inputs))
        parts.inputs.append(Input("parameter", name, tuple(parameter.shape), parameter.dtype, parameter.detach()))
    for name, buffer in model.named_buffers():
        parts.inputs.append(Input("buffer", name, tuple(buffer.shape), buffer.dtype, buffer))
    parts.names = [i.name for i in parts.inputs]
    return parts


def _unbound(exported: torch.export.ExportedProgram) -> torch.nn.Module:
    """An exported program as a module whose graph makes its tensors on our device, not where it was exported."""
    module = exported.module()
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default or node.name.startswith("_guards"):
            module.graph.erase_node(node)
            continue
        here = lambda value: device() if isinstance(value, torch.device) else value
        node.args, node.kwargs = torch.utils._pytree.tree_map(here, (node.args, node.kwargs))
    for name in {
        str(n.target) for n in module.graph.nodes if n.op == "get_attr"
    }:  # lifted constants are plain attributes
        owner, _, last = name.rpartition(".")
        holder = module.get_submodule(owner)
        value = getattr(holder, last)
        if isinstance(value, torch.Tensor) and last not in {**holder._parameters, **holder._buffers}:
            delattr(holder, last)
            holder.register_buffer(last, value, persistent=False)
    module.recompile()
    return module


@contextlib.contextmanager
def _said_to_compile() -> Iterator[None]:
    """torch.compiler.is_compiling() is true: libraries then leave out checks of values, which cannot be read here."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _train(
    parts: _Parts,
    own: Sequence[torch.Tensor],
    args: Any,
    kwargs: Any,
    loss: Callable[[Any], torch.Tensor],
    steps: _Steps,
) -> torch.Tensor:
    def step(model: Callable[..., Any]) -> torch.Tensor:
        with _said_to_compile():
            result = model(*args, **kwargs)
        value = loss(result)
        steps.phase = "backward"
        value.backward()
        return value.detach()

    with torch.enable_grad():
        for position in parts.trainable:
            own[position].requires_grad_(True)
        return parts.with_tensors(own, step)


State = tuple[int, str, Input]


def _states(
    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], inputs: list[Input], trainable: list[int]
) -> list[State]:
    """The optimizer's state after a step: (parameter, name, shape and dtype, or the value of a number on the host)."""
    found: list[State] = []

    def run(*parameters: torch.Tensor) -> list[Any]:
        for p in parameters:
            p.requires_grad_(True)
            p.grad = stand_in(p.shape, p.dtype)
        made = make(list(parameters))
        made.step()
        for position, p in zip(trainable, parameters, strict=True):
            for name, value in made.state.get(p, {}).items():
                on_host = not isinstance(value, torch.Tensor) or value.device.type == "cpu"
                size, dtype = ((), None) if on_host else (tuple(value.shape), value.dtype)
                label = f"{inputs[position].name}.{name}"
                found.append(
                    (position, name, Input("state", label, size, dtype, _before(name, value) if on_host else None))
                )
        return []

    capture(run, [stand_in(inputs[i].size, inputs[i].dtype) for i in trainable])  # type: ignore[arg-type]
    return sorted(found, key=lambda s: s[2].dtype is None)  # numbers on the host last: they are no inputs


def _before(name: str, value: Any) -> Any:
    """A number on the host as it was before the step that was just recorded: of these, only counters are known."""
    return value - 1 if name == "step" else value


def _step(
    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
    own: Sequence[torch.Tensor],
    trainable: list[int],
    states: list[State],
    tensors: Sequence[torch.Tensor],
    steps: _Steps,
) -> None:
    steps.phase = "optimizer"
    made = make([own[i] for i in trainable])
    supply = iter(tensors)
    for position, name, what in states:
        if what.dtype is None:
            value = what.source.clone() if isinstance(what.source, torch.Tensor) else what.source
        else:
            value = next(supply)
        made.state[own[position]][name] = value
    made.step()


def _assemble(captured: Captured, inputs: list[Input], in_tree: Tree, out_tree: Tree, phases: list[str]) -> Traced:
    """Keep the steps that results or writes need, and number values anew."""
    inputs = [i for i in inputs if i.dtype is not None]
    for k, constant in enumerate(captured.constants):
        shape = constant.spec.shape
        inputs.append(Input("constant", f"constant.{k}", shape, None, constant.array))
    written = dict(captured.writes)
    numbers = [o.value if o.input < 0 else written.get(o.input, o.input) for o in captured.outputs]
    wanted = list(dict.fromkeys([*numbers, *written.values()]))
    count = len(captured.in_specs)
    kept, renumbered = _needed(captured.steps, count, wanted)
    program = Program(
        steps=tuple((t, tuple(renumbered[v] for v in operands)) for t, operands in (captured.steps[s] for s in kept)),
        in_specs=tuple(captured.in_specs),
        outputs=tuple(renumbered[v] for v in wanted),
        donate=tuple(sorted(written)),
        key=("traced", id(captured)),
    )
    places = [o.place for o in captured.outputs if o.place is not None]
    random = [k for k, s in enumerate(kept) if captured.steps[s][0].draws]
    offsets = [captured.numbers[kept[k]][-1][1] for k in random]
    numbering = [captured.numbers[s] for s in kept]
    for k, offset in zip(random, offsets, strict=True):
        numbering[k] = (*numbering[k][:-1], (0, offset - offsets[0]))
    return Traced(
        program=program,
        numbers=numbering,
        random=random,
        inputs=inputs,
        results=[(wanted.index(n), place) for n, place in zip(numbers, places, strict=True)],
        writes=[(a, wanted.index(v)) for a, v in written.items()],
        in_tree=in_tree,
        out_tree=out_tree,
        lines=[captured.lines[s] for s in kept],
        phases=[phases[s] for s in kept],
    )


def _needed(steps: Sequence[Any], num_inputs: int, wanted: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """The steps without which `wanted` values cannot be had, and the new number of every value that stays."""
    first = [num_inputs]
    for template, _ in steps:
        first.append(first[-1] + len(template.outs))
    needed = set(wanted)
    kept = []
    for s in reversed(range(len(steps))):
        if any(v in needed for v in range(first[s], first[s + 1])):
            kept.append(s)
            needed.update(steps[s][1])
    kept.reverse()
    renumbered = {i: i for i in range(num_inputs)}
    at = num_inputs
    for s in kept:
        for v in range(first[s], first[s + 1]):
            renumbered[v] = at
            at += 1
    return kept, renumbered
