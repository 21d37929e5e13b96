"""torch.autocast and GradScaler."""

import threading

import pytest
import torch
import torch.nn.functional as F


@pytest.fixture
def x(device):
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).to(device)


def test_default_dtype_is_bfloat16_in_every_thread(x):
    assert torch.get_autocast_dtype("pjrt") == torch.bfloat16
    found = []

    def other():
        with torch.autocast("pjrt"):
            found.append((x @ x).dtype)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [torch.bfloat16]
    torch.set_autocast_dtype("pjrt", torch.float16)
    assert torch.get_autocast_dtype("pjrt") == torch.float16
    torch.set_autocast_dtype("pjrt", torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_lists(x, dtype):
    w, b = x.clone().requires_grad_(), x[0].clone().requires_grad_()
    with torch.autocast("pjrt", dtype=dtype):
        assert torch.is_autocast_enabled("pjrt")
        y = F.linear(x, w, b)
        assert y.dtype == dtype
        for result in (x @ x, torch.mm(x, x), torch.addmm(b, x, x), torch.einsum("ij,jk->ik", x, x), torch.mv(x, b)):
            assert result.dtype == dtype
        assert F.conv1d(x[None], x[:, :, None]).dtype == dtype
        q = x.reshape(1, 2, 4, 8)
        assert F.scaled_dot_product_attention(q, q.to(dtype), q).dtype == dtype
        for result in (y.exp(), y.softmax(-1), F.layer_norm(y, (8,)), y.sum(), y.sum(0), y.pow(2), F.mse_loss(y, y)):
            assert result.dtype == torch.float32
        assert F.cross_entropy(y, torch.arange(8, device=x.device)).dtype == torch.float32
        assert y.norm().dtype == torch.float32
        assert (y + y).dtype == dtype and F.relu(y).dtype == dtype
        assert torch.addcmul(y, x, x).dtype == torch.float32 and torch.dot(y[0], y[0]).dtype == dtype
        assert (x.double() @ x.double()).dtype == torch.float64
        assert torch.arange(4, device=x.device).sum().dtype == torch.int64
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(y.sigmoid(), y.sigmoid())
        with torch.autocast("pjrt", enabled=False):
            assert (x @ x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_gradients_reach_float32_weights(x):
    cpu = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    grads = []
    for device in ("cpu", x.device):
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)).to(device)
        net.load_state_dict(cpu.state_dict())
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            loss = net(x.to(device)).float().pow(2).mean()
        loss.backward()
        grads.append([p.grad.cpu() for p in net.parameters()])
        assert all(p.grad.dtype == torch.float32 for p in net.parameters())
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.05)


def test_weights_are_cast_once(x):
    from torch_pjrt.tensor import autocast

    w = x.clone().requires_grad_()
    with torch.autocast("pjrt"):
        F.linear(x, w)
        F.linear(x, w)
        assert len(autocast._cache) == 1
        with torch.no_grad():
            F.linear(x, w)
            w.mul_(2)
        y = F.linear(x, w)
        y.sum().backward()
    torch.testing.assert_close(y.float(), x @ w.t(), rtol=0.1, atol=0.2)
    assert not autocast._cache and w.grad is not None
    with torch.autocast("pjrt", cache_enabled=False):
        F.linear(x, w)
        assert not autocast._cache


def test_custom_forward_and_backward(device):
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="pjrt", cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype == torch.float32 and not torch.is_autocast_enabled("pjrt")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="pjrt")
        def backward(ctx, g):
            return g * 2

    x = torch.ones(2, device=device, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("pjrt"):
        Double.apply(x).sum().backward()
    assert x.grad.float().tolist() == [2, 2]


def test_grad_scaler(device):
    w = torch.ones(2, device=device, requires_grad=True)
    opt = torch.optim.SGD([w], lr=0.1)
    scaler = torch.amp.GradScaler("pjrt", init_scale=4.0)
    scaler.scale(w.sum()).backward()
    scaler.step(opt)
    scaler.update()
    torch.testing.assert_close(w.detach().cpu(), torch.full((2,), 0.9))
    scaler.scale(w.sum() * float("inf")).backward()
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 2.0
    torch.testing.assert_close(w.detach().cpu(), torch.full((2,), 0.9))
    assert isinstance(torch.pjrt.amp.GradScaler(), torch.amp.GradScaler)


def test_cpu_autocast_is_untouched():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        with torch.autocast("pjrt"):
            pass


def test_namespace_autocast(x):
    with torch.pjrt.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16


def test_lstm(x):
    lstm = torch.nn.LSTM(8, 4).to(x.device)
    with torch.autocast("pjrt"):
        y, _ = lstm(x[:, None])
    assert y.dtype == torch.bfloat16 and y.shape == (8, 1, 4)
    y.float().sum().backward()
    assert lstm.weight_ih_l0.grad.dtype == torch.float32
