"""Training loops: scaled and narrow, accumulated, clipped, averaged, scheduled, compiled in parts or as a whole."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler, swa_utils

from tests.compile.programs import gradients, normal, perceptron, program, state


@program(rtol=0.15, atol=3e-2)
def scaled_gradients_in_bfloat16(device: str, compile: Any) -> Any:
    model = perceptron(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2)
    compiled = compile(model)
    losses = []
    for i in range(4):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = compiled(normal(5, 8, device=device, seed=i)).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss)
    return losses, scaler.get_scale()


@program(quick=True)
def overflowing_step_is_skipped(device: str, compile: Any) -> Any:
    model = perceptron(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10)
    loss_of = compile(lambda x: model(x).square().mean())
    scales = []
    for i in range(3):
        x = normal(5, 8, device=device, seed=i)
        optimizer.zero_grad()
        scaler.scale(loss_of(x * float("inf") if i == 1 else x)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, state(model)


@program(rtol=0.1, atol=2e-2)
def autocast_in_the_graph_with_a_part_without(device: str, compile: Any) -> Any:
    model = perceptron(device)

    def run(x: torch.Tensor) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            y = model(x)
            with torch.autocast(device, enabled=False):
                return y.dtype == torch.bfloat16, y.float().softmax(-1)

    return compile(run)(normal(3, 8, device=device))


@program()
def accumulated_clipped_scheduled_averaged(device: str, compile: Any) -> Any:
    model = perceptron(device)
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-2), foreach=False)
    schedule = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=6)
    loss_of = compile(lambda x: model(x).pow(2).mean() / 2)
    step = compile(optimizer.step)
    for i in range(3):
        for j in range(2):
            loss_of(normal(4, 8, device=device, seed=10 * i + j)).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(model)
    return norm, state(model), state(average), [float(rate) for rate in schedule.get_last_lr()]


@program(quick=True)
def whole_step_compiled(device: str, compile: Any) -> Any:
    model = perceptron(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)

    @compile
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    targets = torch.arange(6, device=device) % 4
    return [step(normal(6, 8, device=device, seed=i), targets) for i in range(4)], state(model)


@program()
def backward_in_the_graph_clipped_by_value(device: str, compile: Any) -> Any:
    model = perceptron(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    warmup = lr_scheduler.LinearLR(optimizer, 0.1, 1, 2)
    schedule = lr_scheduler.SequentialLR(optimizer, [warmup, lr_scheduler.CosineAnnealingLR(optimizer, 3)], [2])

    @compile
    def backward(x: torch.Tensor) -> torch.Tensor:
        loss = F.smooth_l1_loss(model(x), torch.zeros(3, 4, device=x.device))
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        return loss.detach()

    losses = []
    for i in range(4):
        optimizer.zero_grad()
        losses.append(backward(normal(3, 8, device=device, seed=i)))
        optimizer.step()
        schedule.step()
    return losses, state(model)


@program(quick=True)
def optimizers_in_backward(device: str, compile: Any) -> Any:
    model = perceptron(device)
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def update(p: torch.Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    compiled = compile(model)
    for i in range(3):
        compiled(normal(3, 8, device=device, seed=i)).square().sum().backward()
    return state(model), gradients(model)


@program(rtol=0.25, atol=5e-2)
def model_in_bfloat16(device: str, compile: Any) -> Any:
    model = perceptron(device).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    compiled = compile(model)
    for i in range(3):
        optimizer.zero_grad()
        loss = compiled(normal(4, 8, device=device, seed=i).bfloat16()).float().square().mean()
        loss.backward()
        optimizer.step()
    return loss, state(model)


@program()
def batches_from_a_worker(device: str, compile: Any) -> Any:
    data = torch.utils.data.TensorDataset(normal(12, 8), torch.arange(12) % 4)
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, pin_memory=device != "cpu")
    compiled = compile(perceptron(device))
    return [F.cross_entropy(compiled(x.to(device, non_blocking=True)), y.to(device)) for x, y in loader]


@program()
def running_statistics(device: str, compile: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()).to(device)
    compiled = compile(model)
    outputs = [compiled(normal(2, 2, 5, 5, device=device, seed=i)) for i in range(2)]
    model.eval()
    outputs.append(compiled(normal(2, 2, 5, 5, device=device, seed=9)))
    model.train()
    outputs.append(compiled(normal(2, 2, 5, 5, device=device, seed=3)))
    return outputs, state(model)
