"""Pickle, torch.save and torch.load in every direction, safetensors, state dicts."""

import io
import pickle

import pytest
import torch


def _round_trip(obj, **kwargs):
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, **kwargs)


DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint8]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_survive(dtype, device):
    host = torch.tensor([0, 1, 2, 3]).to(dtype)
    backs = [_round_trip(host.to(device))]
    if dtype != torch.float8_e4m3fn:  # which torch cannot pickle on any device
        backs.append(pickle.loads(pickle.dumps(host.to(device))))
    for back in backs:
        assert back.device == device and back.dtype == dtype
        assert back.cpu().untyped_storage().tolist() == host.untyped_storage().tolist()


LOCATIONS = [
    (None, "pjrt"),
    ("pjrt", "pjrt"),
    ("pjrt:0", "pjrt"),
    (torch.device("cpu"), "cpu"),
    ("cpu", "cpu"),
    ("meta", "meta"),
    ({"pjrt:0": "cpu"}, "cpu"),
    (lambda storage, location: storage, "cpu"),
    (lambda storage, location: storage.pjrt(), "pjrt"),
]


@pytest.mark.parametrize(("location", "lands"), LOCATIONS, ids=str)
@pytest.mark.parametrize("legacy", [False, True])
def test_locations(location, lands, legacy, device):
    a = torch.arange(4.0, device=device)
    buffer = io.BytesIO()
    torch.save({"a": a, "b": a[1:3]}, buffer, _use_new_zipfile_serialization=not legacy)
    buffer.seek(0)
    back = torch.load(buffer, map_location=location)
    assert back["a"].device.type == lands
    if lands != "meta":
        assert back["a"].tolist() == [0, 1, 2, 3] and back["b"].tolist() == [1, 2]
        assert back["a"].untyped_storage().data_ptr() == back["b"].untyped_storage().data_ptr()


@pytest.mark.parametrize("to", ["pjrt", torch.device("pjrt"), torch.device("pjrt", 0), {"cpu": "pjrt"}], ids=str)
def test_cpu_file_onto_the_device(to, device):
    back = _round_trip({"w": torch.arange(3.0)}, map_location=to)
    assert back["w"].device == device and back["w"].tolist() == [0, 1, 2]


def test_mmap_file_onto_the_device(tmp_path, device):
    torch.save({"w": torch.arange(3.0)}, tmp_path / "f.pt")
    assert torch.load(tmp_path / "f.pt", map_location=device, mmap=True)["w"].tolist() == [0, 1, 2]


def test_views_parameters_and_strides(device):
    p = torch.nn.Parameter(torch.arange(6.0, device=device).reshape(2, 3))
    q, t = _round_trip([p, p.detach().t()], weights_only=True)
    assert isinstance(q, torch.nn.Parameter) and t.stride() == (1, 3) and t.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert t.untyped_storage().data_ptr() == q.untyped_storage().data_ptr()


def test_module_and_optimizer_state(device):
    net = torch.nn.Linear(3, 2).to(device)
    opt = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 3, device=device)).sum().backward()
    opt.step()
    state = _round_trip({"net": net.state_dict(), "opt": opt.state_dict()}, map_location="cpu", weights_only=True)
    plain = torch.nn.Linear(3, 2)
    plain.load_state_dict(state["net"])
    other = torch.optim.AdamW(plain.parameters())
    other.load_state_dict(state["opt"])
    x = torch.ones(2, 3)
    torch.testing.assert_close(plain(x), net(x.to(device)).cpu())
    net.load_state_dict(plain.state_dict())
    assert net.weight.device == device


def test_whole_module(device):
    net = torch.nn.Linear(3, 2).to(device)
    for back in (_round_trip(net, weights_only=False), pickle.loads(pickle.dumps(net))):
        assert back.weight.device == device
        assert torch.equal(back.weight.cpu(), net.weight.cpu())


def test_storage_objects(device):
    s = torch.arange(3, dtype=torch.uint8, device=device).untyped_storage()
    assert _round_trip(s, weights_only=False).tolist() == [0, 1, 2]


def test_rng_state_in_a_checkpoint(device):
    torch.manual_seed(4)
    state = _round_trip(torch.pjrt.get_rng_state())
    a = torch.rand(3, device=device).cpu()
    torch.pjrt.set_rng_state(state)
    assert torch.equal(a, torch.rand(3, device=device).cpu())


def test_safetensors(tmp_path, device):
    st = pytest.importorskip("safetensors.torch")
    net = torch.nn.Linear(3, 2).to(device)
    st.save_file(net.state_dict(), tmp_path / "a.safetensors")
    assert torch.equal(st.load_file(tmp_path / "a.safetensors")["weight"], net.weight.detach().cpu())
    assert st.load_file(tmp_path / "a.safetensors", device=0)["weight"].device == device
    st.save_model(net, str(tmp_path / "b.safetensors"))
    other = torch.nn.Linear(3, 2).to(device)
    st.load_model(other, str(tmp_path / "b.safetensors"))
    assert torch.equal(other.weight.cpu(), net.weight.cpu())
