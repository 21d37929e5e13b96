"""Modules: tied, hooked, parametrized, lazy, recurrent, with state of their own, copied, saved and loaded."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.compile.programs import gradients, normal, perceptron, program, state


@program()
def tied_embedding(device: str, compile: Any) -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 8)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(ids))

    torch.manual_seed(0)
    model = Model().to(device)
    ids = torch.arange(6, device=device).view(2, 3)
    compile(model)(ids).logsumexp(-1).sum().backward()
    call = compile(lambda parameters, ids: torch.func.functional_call(model, parameters, (ids,)))
    doubled = {name: p * 2 for name, p in model.named_parameters()}
    return model.head.weight is model.embedding.weight, model.embedding.weight.grad, call(doubled, ids)


@program()
def hooks_of_every_kind(device: str, compile: Any) -> Any:
    model = perceptron(device)
    sums: list[float] = []
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[1].register_forward_hook(lambda module, args, output: output + 1)
    model[2].register_full_backward_hook(lambda module, given, grads: (given[0] * 3,))
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    model[0].bias.register_post_accumulate_grad_hook(lambda p: sums.append(p.grad.sum().item()))
    x = normal(3, 8, device=device).requires_grad_()
    compile(model)(x).sum().backward()
    return x.grad, gradients(model), sums


@program(rtol=1e-3, atol=1e-4)
def normalised_and_orthogonal_weights(device: str, compile: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(6, 6)),
        parametrizations.weight_norm(nn.Linear(6, 5)),
        parametrizations.orthogonal(nn.Linear(5, 5)),
    ).to(device)
    compiled = compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(2):
        optimizer.zero_grad()
        loss = compiled(normal(4, 6, device=device, seed=i)).square().sum()
        loss.backward()
        optimizer.step()
    return loss, [layer.weight for layer in model]


@program()
def cached_parametrization(device: str, compile: Any) -> Any:
    class Symmetric(nn.Module):
        def forward(self, half: torch.Tensor) -> torch.Tensor:
            return half.triu() + half.triu(1).mT

        def right_inverse(self, whole: torch.Tensor) -> torch.Tensor:
            return whole.triu()

    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    compiled = compile(layer.to(device))
    with parametrize.cached():
        y = compiled(normal(2, 4, device=device))
    y.sum().backward()
    return y, layer.parametrizations.weight.original.grad


@program(quick=True)
def lazy_modules(device: str, compile: Any) -> Any:
    model = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2)).to(device)
    x = normal(5, 3, device=device)
    with torch.no_grad():
        model(x)
        for i, p in enumerate(model.parameters()):
            p.copy_(normal(*p.shape, seed=i))
    model[1].reset_running_stats()
    y = compile(model)(x)
    y.sum().backward()
    return y, gradients(model), state(model)


@program()
def packed_sequences(device: str, compile: Any) -> Any:
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True).to(device)
    x = normal(3, 6, 3, device=device).requires_grad_()

    def run(x: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, torch.tensor([6, 2, 4]), batch_first=True, enforce_sorted=False)
        output, (h, c) = lstm(packed)
        return pad_packed_sequence(output, batch_first=True)[0], h, c

    output, h, c = compile(run)(x)
    (output.sum() + h.sum()).backward()
    return output, h, c, x.grad


@program()
def cell_in_a_loop(device: str, compile: Any) -> Any:
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 4).to(device)

    @compile
    def run(xs: torch.Tensor) -> torch.Tensor:
        h = xs.new_zeros(2, 4)
        for x in xs:
            h = cell(x, h)
        return h

    xs = normal(5, 2, 3, device=device).requires_grad_()
    h = run(xs)
    h.sum().backward()
    return h, xs.grad, gradients(cell)


@program()
def attributes_buffers_and_keywords(device: str, compile: Any) -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.first: torch.Tensor | None = None
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: torch.Tensor, *, scale: float = 1.0, mask: Any = None, **rest: Any) -> dict[str, Any]:
            self.calls += 1
            self.total += x.mean(0)
            if self.first is None:
                self.first = x
            y = x * scale + self.first
            return {"y": y if mask is None else y.masked_fill(mask, 0), "rest": rest.get("extra", 0)}

    model = Model().to(device)
    compiled = compile(model)
    x = normal(3, 2, device=device)
    results = [compiled(x, scale=2.0), compiled(x, mask=x > 0, extra=3), compiled(x * 2, scale=0.5)]
    return results, model.calls, model.total


@program()
def copies_and_files(device: str, compile: Any) -> Any:
    model = perceptron(device)
    compiled = compile(model)
    x = normal(2, 8, device=device)
    results = [compiled(x), copy.deepcopy(compiled)(x)]
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = perceptron(device, seed=5)
    other.load_state_dict(torch.load(file, weights_only=True, map_location=device))
    results.append(compile(other)(x))
    third = perceptron(device, seed=7)
    if device != "cpu":
        third.compile()
    results += [pickle.loads(pickle.dumps(third))(x), third(x)]
    return results, len(compiled.state_dict())


@program(quick=True)
def weights_loaded_after_compiling(device: str, compile: Any) -> Any:
    model = perceptron(device)
    compiled = compile(model)
    x = normal(2, 8, device=device)
    results = [compiled(x)]
    doubled = {name: p * 2 for name, p in model.state_dict().items()}
    for new, assign in ((doubled, False), ({n: p.cpu() * 3 for n, p in doubled.items()}, False), (doubled, True)):
        model.load_state_dict(new, assign=assign)
        results.append(compiled(x))
    return results


@program()
def experts_chosen_by_where(device: str, compile: Any) -> Any:
    torch.manual_seed(0)
    experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]).to(device)
    gate = nn.Linear(4, 3).to(device)

    @compile
    def run(x: torch.Tensor) -> torch.Tensor:
        weights, chosen = gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            rows, places = torch.where(chosen == number)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, places, None])
        return out

    x = normal(5, 4, device=device).requires_grad_()
    y = run(x)
    y.sum().backward()
    return y, x.grad, gradients(experts)
