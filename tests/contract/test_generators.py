"""Generators and RNG state."""

import copy
import pickle
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from torch_pjrt.tensor import random


def test_is_a_torch_generator(device):
    g = torch.Generator(device="pjrt")
    assert isinstance(g, torch.Generator) and g.device == device
    assert torch.Generator().device.type == "cpu" and torch.Generator("cpu").device.type == "cpu"
    assert torch.Generator(device).device == device
    with pytest.raises(RuntimeError):
        torch.Generator("pjrt:1")


def test_seed_and_state():
    g = torch.Generator(device="pjrt").manual_seed(7)
    assert g.initial_seed() == 7 and g.get_offset() == 0
    assert g.manual_seed(-1).initial_seed() == 2**64 - 1
    with pytest.raises(ValueError):
        g.manual_seed(2**64)
    assert g.seed() == g.initial_seed()
    g.manual_seed(9)
    g.set_offset(8)
    state = g.get_state()
    assert state.dtype == torch.uint8 and state.shape == (16,) and state.device.type == "cpu"
    assert state[:8].view(torch.int64).item() == 9 and state[8:].view(torch.int64).item() == 8
    other = torch.Generator(device="pjrt")
    other.set_state(state)
    assert other.initial_seed() == 9 and other.get_offset() == 8
    with pytest.raises(TypeError):
        g.set_state([1, 2])
    with pytest.raises(RuntimeError, match="size"):
        g.set_state(torch.zeros(5, dtype=torch.uint8))


@pytest.mark.parametrize("again", [torch.Generator.clone_state, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies_replay(again, device):
    g = torch.Generator(device="pjrt").manual_seed(3)
    torch.rand(5, device=device, generator=g)
    twin = g.clone_state() if again is torch.Generator.clone_state else again(g)
    assert torch.equal(
        torch.rand(9, device=device, generator=g).cpu(), torch.rand(9, device=device, generator=twin).cpu()
    )


def test_random_ops_take_it(device):
    g = torch.Generator(device="pjrt")
    draws = [
        lambda: torch.randn(4, device=device, generator=g),
        lambda: torch.rand(4, device=device, generator=g),
        lambda: torch.randint(0, 100, (4,), device=device, generator=g),
        lambda: torch.empty(4, device=device).normal_(generator=g),
        lambda: torch.empty(4, device=device).uniform_(generator=g),
        lambda: torch.randperm(8, device=device, generator=g),
    ]
    for draw in draws:
        g.manual_seed(11)
        first, second = draw().cpu(), draw().cpu()
        g.manual_seed(11)
        assert torch.equal(draw().cpu(), first) and not torch.equal(first, second)


def test_generator_leaves_the_default_alone(device):
    torch.manual_seed(5)
    before = torch.pjrt.get_rng_state()
    torch.rand(4, device=device, generator=torch.Generator(device="pjrt")).cpu()
    assert torch.equal(before, torch.pjrt.get_rng_state())


def test_generator_of_another_device_is_refused(device):
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=device, generator=torch.Generator())
    with pytest.raises(RuntimeError):
        torch.empty(3, device=device).normal_(generator=torch.Generator())


def test_default_generator(device):
    torch.manual_seed(123)
    assert torch.pjrt.initial_seed() == 123
    assert torch.pjrt.default_generators[0].initial_seed() == 123
    a = torch.rand(6, device=device).cpu()
    torch.manual_seed(123)
    assert torch.equal(a, torch.rand(6, device=device).cpu())
    state = torch.pjrt.get_rng_state()
    b = torch.rand(6, device=device).cpu()
    torch.pjrt.set_rng_state(state)
    assert torch.equal(b, torch.rand(6, device=device).cpu())
    torch.pjrt.set_rng_state_all(torch.pjrt.get_rng_state_all())


@pytest.mark.parametrize("kind", ["pjrt", None])
def test_fork_rng(kind, device):
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type=kind):
        inside = torch.rand(3, device=device).cpu()
    assert torch.equal(inside, torch.rand(3, device=device).cpu())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_replays_dropout(reentrant, device):
    x = torch.ones(64, device=device, requires_grad=True)

    def body(x):
        return torch.nn.functional.dropout(x * 3, 0.5)

    torch.manual_seed(2)
    y = checkpoint(body, x, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_take_is_in_order_and_thread_safe():
    state = random.State(1)
    assert random.take(state, 5) == (1, 0) and random.take(state, 4) == (1, 8) and random.take(state, 1) == (1, 12)
    seen = []
    threads = [
        threading.Thread(target=lambda: seen.extend(random.take(state, 4)[1] for _ in range(200))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 800


def test_states_go_with_their_generators():
    count = len(random._states)
    g = torch.Generator(device="pjrt")
    assert len(random._states) == count + 1 and random.state_of(g).offset == 0
    del g
    assert len(random._states) == count
