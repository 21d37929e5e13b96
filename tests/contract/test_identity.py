"""Objects stay who they are when they move: parameters, tied weights, optimizers, `.data`."""

import torch
from torch import nn


def test_parameters_stay_the_same_objects(device):
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    before = list(net.parameters())
    opt = torch.optim.SGD(net.parameters(), lr=1.0)
    net.to(device)
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert net[1].weight is net[0].weight and net[0].weight.device == device
    net(torch.ones(1, 3, device=device)).sum().backward()
    before_step = net[0].weight.detach().cpu().clone()
    opt.step()
    assert not torch.equal(before_step, net[0].weight.detach().cpu())
    net.to("cpu")
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True)) and before[0].device.type == "cpu"


def test_gradients_move_along(device):
    net = nn.Linear(2, 2)
    net(torch.ones(1, 2)).sum().backward()
    grad = net.weight.grad
    net.to(device)
    assert net.weight.grad is grad and grad.device == device


def test_buffers_and_dtype(device):
    net = nn.BatchNorm1d(4).to(device, torch.bfloat16)
    assert net.running_mean.device == device and net.running_mean.dtype == torch.bfloat16
    assert net.num_batches_tracked.dtype == torch.int64


def test_meta_init_then_to_empty(device):
    with torch.device("meta"):
        net = nn.Linear(3, 3)
    net.to_empty(device=device)
    nn.init.ones_(net.weight)
    assert net.weight.device == device and net.weight.sum().item() == 9


def test_to_is_a_no_op_on_the_device(device):
    x = torch.ones(2, device=device)
    assert x.to(device) is x and x.to("pjrt") is x and x.to("pjrt:0") is x and x.to(0) is x


def test_assigning_data(device):
    p = nn.Parameter(torch.zeros(2))
    p.data = torch.ones(3, device=device)
    assert p.device == device and p.shape == (3,) and p.requires_grad
    p.data = p.data.cpu()
    assert p.device.type == "cpu"


def test_parametrize_and_spectral_norm(device):
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to(device)
    net(torch.ones(1, 3, device=device)).sum().backward()
    assert net.parametrizations.weight.original0.grad.device == device


def test_shared_views_of_flat_parameters(device):
    flat = torch.arange(6.0, device=device)
    a, b = nn.Parameter(flat[:3]), nn.Parameter(flat[3:])
    with torch.no_grad():
        flat.mul_(2)
    assert a.tolist() == [0, 2, 4] and b.tolist() == [6, 8, 10]


def test_lazy_modules_move_before_they_have_shapes(device):
    net = nn.LazyLinear(3).to(device)
    net = net.half().float().cpu().to(device)
    assert net.weight.device == device and nn.parameter.is_lazy(net.weight)
    assert net(torch.ones(2, 4, device=device)).shape == (2, 3) and net.weight.shape == (3, 4)
