"""What Dynamo must get right around the graphs: sizes, breaks, globals, lists, threads, stances, errors, views."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import io
import threading
import weakref
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.compile.programs import gradients, normal, perceptron, program


@program(quick=True)
def sizes_marked_with_bounds(device: str, compile: Any) -> Any:
    compiled = compile(perceptron(device), fullgraph=True)
    results = []
    for count in (2, 5, 9, 3):
        x = normal(count, 8, device=device, seed=count)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        results.append(compiled(x))
    return results


@program()
def sizes_in_the_results(device: str, compile: Any) -> Any:
    run = compile(lambda x, n: torch.cat([x, x[:n]], 0).reshape(-1, 2).sum(1) * x.shape[0], dynamic=True)
    return [run(normal(n, 4, device=device), n // 2) for n in (4, 6, 10)]


@program()
def globals_and_lists(device: str, compile: Any) -> Any:
    held: dict[str, Any] = {"calls": 0, "total": torch.zeros(3, device=device)}
    history: list[torch.Tensor] = []

    @compile
    def run(x: torch.Tensor) -> torch.Tensor:
        held["calls"] += 1
        held["total"] = held["total"] + x
        history.append(x * 2)
        return held["total"] * held["calls"]

    return [run(normal(3, device=device, seed=i)) for i in range(3)], history, held


@program()
def printing_and_branching_on_values(device: str, compile: Any) -> Any:
    printed = io.StringIO()

    @compile
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        with contextlib.redirect_stdout(printed):
            print("mean", round(y.mean().item(), 3))
        return y * 2 if y.sum() > 0 else y - 1

    return run(normal(4, device=device)), run(-normal(4, device=device)), printed.getvalue()


@program()
def methods(device: str, compile: Any) -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.weight = normal(4, 4, device=device).requires_grad_()
            self.scale = 2

        def loss(self, x: torch.Tensor) -> torch.Tensor:
            self.scale += 1
            return (x @ self.weight * self.scale).sum()

        @staticmethod
        def more(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        @classmethod
        def twice(cls, x: torch.Tensor) -> torch.Tensor:
            return cls.more(x) * 2

    trainer = Trainer()
    loss_of = compile(trainer.loss)
    losses = [loss_of(normal(2, 4, device=device)) for _ in range(3)]
    losses[-1].backward()
    return losses, trainer.weight.grad, compile(Trainer.twice)(trainer.weight), compile(Trainer.more)(trainer.weight)


@program()
def models_in_threads(device: str, compile: Any) -> Any:
    models = [perceptron(device, i) for i in range(3)]
    compiled = [compile(m) for m in models]
    failures: list[BaseException] = []

    def train(i: int) -> None:
        try:
            for k in range(2):
                compiled[i](normal(4, 8, device=device, seed=k)).square().sum().backward()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=train, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return [gradients(m) for m in models]


@program(quick=True)
def position_in_a_tensor(device: str, compile: Any) -> Any:
    """A decoding step; Dynamo keeps slices as constants of its code, which then has no hash before Python 3.12."""
    weight = normal(8, 8, device=device, seed=5)

    @compile
    def step(cache: torch.Tensor, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        cache[:, position] = x @ weight
        scores = torch.einsum("bd,btd->bt", x @ weight, cache)
        scores = scores.masked_fill(torch.arange(10, device=x.device) > position, -torch.inf)
        return torch.einsum("bt,btd->bd", scores.softmax(-1), cache)

    cache, x, results = torch.zeros(2, 10, 8, device=device), normal(2, 8, device=device), []
    with torch.no_grad():
        for i in range(8):
            x = step(cache, x, torch.tensor(i, device=device)).tanh()
            results.append(x)
    return results, cache


@program()
def position_as_a_number(device: str, compile: Any) -> Any:
    weight = normal(8, 8, device=device, seed=5)

    @compile
    def step(cache: torch.Tensor, x: torch.Tensor, position: int) -> torch.Tensor:
        cache[:, position] = x @ weight
        known = cache[:, : position + 1]
        return torch.einsum("bt,btd->bd", torch.einsum("bd,btd->bt", x @ weight, known).softmax(-1), known)

    cache, x, results = torch.zeros(2, 10, 8, device=device), normal(2, 8, device=device), []
    with torch.no_grad():
        for i in range(7):
            x = step(cache, x, i).tanh()
            results.append(x)
    return results, cache


@program(quick=True)
def errors_and_then_more_calls(device: str, compile: Any) -> Any:
    def attempt(function: Any, *args: Any) -> Any:
        try:
            result = function(*args)
            return result.cpu() if isinstance(result, torch.Tensor) else result
        except Exception:  # noqa: BLE001 - of whatever class compilers make of it
            return "refused"

    product = compile(lambda a, b: (a @ b).relu())
    take = compile(lambda x, i: x[i] * 2)

    @compile
    def refuse(x: torch.Tensor, refused: bool) -> torch.Tensor:
        y = x + 1
        if refused:
            raise ValueError("no")
        return y

    x = normal(3, device=device)
    return (
        attempt(product, normal(2, 3, device=device), normal(4, 5, device=device)),
        attempt(product, normal(2, 3, device=device), normal(3, 5, device=device)),
        attempt(take, x, torch.tensor([5], device=device)),
        attempt(take, x, torch.tensor([1], device=device)),
        attempt(refuse, x, True),
        attempt(refuse, x, False),
    )


@program()
def modes_of_autograd_mixed(device: str, compile: Any) -> Any:
    model = perceptron(device)
    compiled, in_place = compile(model), compile(lambda x: (x * 2).add_(1))
    x = normal(2, 8, device=device)
    with torch.inference_mode():
        results = [compiled(x).clone()]
    with torch.no_grad():
        results.append(compiled(x))
    results.append(compiled(x))
    results[-1].sum().backward()
    with torch.inference_mode():
        born = normal(2, 8, device=device, seed=2)
        results += [compiled(born).clone(), in_place(born).clone()]
    model.requires_grad_(False)
    results.append(compiled(x))
    model.requires_grad_(True)
    return [*results, compiled(x)], gradients(model)


@program()
def writes_through_views(device: str, compile: Any) -> Any:
    @compile
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        part = x[1:3].t()
        part.mul_(2)
        y.view(-1)[::2].add_(part.sum())
        x.diagonal().fill_(7)
        return part, x.as_strided((2, 2), (1, 4), 1).clone(), x.view(-1)[3:5]

    x, y = normal(4, 4, device=device), normal(3, 2, device=device)
    first, second = run(x, y), run(x, y)
    first[0].zero_()
    return first, second, x, y


@program()
def results_that_are_views_of_arguments(device: str, compile: Any) -> Any:
    x = normal(2, 3, device=device)
    same, flat, row, detached, fresh = compile(lambda x: (x, x.view(-1), x[0], x.detach(), x + 0))(x)
    flat.add_(1)
    return x, same is x, same.data_ptr() == flat.data_ptr(), row, detached, fresh


@program()
def seeds(device: str, compile: Any) -> Any:
    drop = compile(lambda x: nn.functional.dropout(x, 0.3))
    x = torch.ones(50, 50, device=device)
    torch.manual_seed(3)
    first = drop(x)
    torch.manual_seed(3)
    second = drop(x)
    return torch.equal(first, second), torch.equal(first, drop(x)), round(float((first == 0).float().mean()), 1)


@program()
def stances_and_disabled_parts(device: str, compile: Any) -> Any:
    outside = torch.compiler.disable(lambda x: x.cos())
    run = compile(lambda x: outside(x.sin()) + 1)
    x = normal(3, device=device)
    results = [run(x)]
    with torch.compiler.set_stance("force_eager"):
        results.append(run(x))
    with torch.compiler.set_stance("eager_on_recompile"):
        results.append(run(normal(5, device=device)))
    return results


@program()
def containers(device: str, compile: Any) -> Any:
    @dataclasses.dataclass
    class Pair:
        left: torch.Tensor
        right: int

    Named = collections.namedtuple("Named", "first second")

    @compile
    def run(given: dict[str, Any]) -> Any:
        pair = Pair(given["x"] * 2, 3)
        sums = [t.sum() for t in given["several"]]
        return Named(pair.left + pair.right, {"sums": sums, "all": torch.cat(given["several"]), "count": len(sums)})

    result = run({"x": normal(2, device=device), "several": [normal(n, device=device) for n in (1, 2, 3)]})
    return type(result).__name__, result.first, result.second


@program()
def numpy_in_a_graph(device: str, compile: Any) -> Any:
    run = compile(lambda x: torch.from_numpy(np.sin(x.detach().cpu().numpy()) * 2).to(x.device) + x)
    return run(normal(3, device=device))


@program()
def sizes_that_depend_on_values(device: str, compile: Any) -> Any:
    count = compile(lambda x: x * int(x.abs().sum().item()))
    select = compile(lambda x: (x[x > 0].sum(), x[x > 0], torch.unique((x * 2).round())))
    inputs = [normal(6, device=device, seed=i) for i in range(3)]
    return [count(x * 4) for x in inputs], [select(x) for x in inputs]


@program()
def subclass_of_tensor(device: str, compile: Any) -> Any:
    class Named(torch.Tensor):
        pass

    y = compile(lambda x: (x @ x).relu())(normal(3, 3, device=device).as_subclass(Named))
    return type(y).__name__, y.as_subclass(torch.Tensor)


@program()
def nothing_is_kept_alive(device: str, compile: Any) -> Any:
    run = compile(lambda x: x * 2 + 1)
    x = normal(100, device=device)
    alive = weakref.ref(x)
    y = run(x)
    del x
    gc.collect()
    return alive() is None, y.sum()


@program()
def made_on_meta(device: str, compile: Any) -> Any:
    with torch.device("meta"):
        layer = nn.Linear(3, 2)
    layer.to_empty(device=device)
    with torch.no_grad():
        layer.weight.copy_(normal(2, 3))
        layer.bias.fill_(1)
    return compile(layer)(normal(2, 3, device=device))
