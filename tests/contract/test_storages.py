"""Storages: identity, copies, resizing, deepcopy."""

import copy
import weakref

import pytest
import torch


def test_storage_tells_the_truth(device):
    a = torch.zeros(4, 4, device=device)
    s = a.untyped_storage()
    assert s.nbytes() == 64 and s.device == device and s.is_pjrt and s.data_ptr() == a[1:].untyped_storage().data_ptr()
    assert a.clone().untyped_storage().data_ptr() != s.data_ptr()


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_made_by_size(device):
    for make in (
        lambda: torch.UntypedStorage(16, device="pjrt"),
        lambda: torch.UntypedStorage(16, device=device),
        lambda: torch.UntypedStorage(device=device),
        lambda: torch.UntypedStorage([1, 2, 255], device=device),
    ):
        assert make().device == device
    assert torch.UntypedStorage([1, 2, 255], device=device).tolist() == [1, 2, 255]
    assert torch.UntypedStorage(8).device.type == "cpu" and torch.UntypedStorage(8, device="meta").device.type == "meta"
    assert torch.TypedStorage(4, dtype=torch.float32, device=device).device == device


def test_copies_between_devices(device):
    a = torch.arange(5.0)
    on = a.untyped_storage().to(device=device)
    assert on.device == device
    assert torch.equal(torch.empty(0).set_(on.cpu()), a)
    assert torch.equal(torch.empty(0).set_(on.to(device=torch.device("cpu"), non_blocking=True)), a)
    assert on.clone().tolist() == a.untyped_storage().tolist()
    assert a.untyped_storage().pjrt().device == device
    assert torch.equal(torch.empty(0, device=device).set_(on).cpu(), a)


def test_fill_and_items(device):
    s = torch.UntypedStorage(4, device=device)
    s.fill_(7)
    assert s.tolist() == [7, 7, 7, 7]
    s[1] = 3
    assert s[1] == 3 and "pjrt" in repr(s)


def test_resize_in_place(device):
    a = torch.arange(4.0, device=device)
    view, s = a[:2], a.untyped_storage()
    s.resize_(0)
    assert s.nbytes() == 0 and a.untyped_storage().nbytes() == 0
    s.resize_(16)
    a.copy_(torch.arange(4.0))
    assert view.tolist() == [0, 1] and a.tolist() == [0, 1, 2, 3]
    s.resize_(32)
    assert s.nbytes() == 32 and a.tolist() == [0, 1, 2, 3]
    s.resize_(8)
    assert view.tolist() == [0, 1] and s.resizable()


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_typed_storage(device):
    a = torch.arange(3.0, device=device)
    s = a.storage()
    assert s.device == device and s.tolist() == [0, 1, 2] and len(s) == 3 and s[1] == 1
    assert s.cpu().tolist() == [0, 1, 2] and s.clone().device == device


def test_deepcopy(device):
    a = torch.arange(6.0, device=device)
    pair = copy.deepcopy([a, a[2:4]])
    assert pair[0].device == device and pair[1].tolist() == [2, 3]
    pair[0][2] = 9
    assert pair[1].tolist() == [9, 3] and a.tolist() == [0, 1, 2, 3, 4, 5]
    p = torch.nn.Parameter(a)
    q = copy.deepcopy(p)
    assert isinstance(q, torch.nn.Parameter) and q.requires_grad and q is not p and q.tolist() == p.tolist()
    t = copy.deepcopy(torch.arange(6.0, device=device).reshape(2, 3).t())
    assert t.stride() == (1, 3) and t.tolist() == [[0, 3], [1, 4], [2, 5]]
    e = copy.deepcopy(torch.ones(3, device=device).expand(2, 3))
    assert e.stride() == (0, 1)


def test_shallow_copy_shares(device):
    a = torch.zeros(3, device=device)
    b = copy.copy(a)
    assert b.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
    s = copy.copy(a.untyped_storage())
    assert s.data_ptr() != a.untyped_storage().data_ptr()


def test_modules(device):
    m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).to(device)
    m[1].weight = m[0].weight
    n = copy.deepcopy(m)
    assert n[1].weight is n[0].weight and n[0].weight is not m[0].weight
    x = torch.ones(2, 3, device=device)
    torch.testing.assert_close(n(x).cpu(), m(x).cpu())


def test_payload_dies_with_its_last_tensor(device):
    a = torch.ones(4, device=device)
    cell = weakref.ref(a.untyped_storage()._pjrt)
    b = a[1:].detach()
    del a
    assert cell() is not None
    del b
    torch.pjrt.synchronize()
    assert cell() is None


def test_unowned_views_of_data(device):
    a = torch.ones(3, device=device)
    a.data = torch.zeros(5, device=device)
    assert a.tolist() == [0] * 5
    c = torch.ones(2)
    c.data = torch.full((2,), 4.0, device=device)
    assert c.device == device and c.tolist() == [4, 4]
