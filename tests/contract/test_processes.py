"""DataLoader workers, pinned memory, tensors sent between processes, and forks."""

import multiprocessing
import os

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from torch_pjrt.errors import ForkedProcessError


def test_pin_memory(device):
    a = torch.arange(6.0).reshape(2, 3).t()
    assert not a.is_pinned()
    b = a.pin_memory()
    assert b.is_pinned() and b[1:].is_pinned() and b.stride() == a.stride() and torch.equal(a, b)
    assert b.data_ptr() != a.data_ptr() and b.pin_memory() is b
    assert not b.is_pinned(device="cuda") and b.is_pinned(device="pjrt")
    assert torch.equal(b.to(device, non_blocking=True).cpu(), a)
    assert torch.ones(2).untyped_storage().pin_memory().is_pinned()
    assert not torch.ones(2, device=device).is_pinned()


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_with_pinning(workers, device):
    torch.ones(1, device=device).cpu()
    data = TensorDataset(torch.arange(16.0), torch.arange(16))
    loader = DataLoader(data, batch_size=4, num_workers=workers, pin_memory=True)
    total = 0.0
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        total += (x.to(device, non_blocking=True) + y.to(device)).sum().item()
    assert total == 240


class _TouchesDevice(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (torch.ones(2, device="pjrt") + index).cpu()


def test_forked_worker_that_uses_the_device_is_told(device):
    torch.ones(1, device=device).cpu()
    loader = DataLoader(_TouchesDevice(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="forked"):
        list(loader)


def test_fork_is_detected(device):
    x = torch.ones(2, device=device)
    x.cpu()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = b""
            for use in (lambda: torch.ones(2, device=device).cpu(), lambda: (x + 1).cpu(), torch.pjrt.synchronize):
                try:
                    use()
                    said += b"0"
                except ForkedProcessError:
                    said += b"1"
            said += b"1" if torch.pjrt._is_in_bad_fork() and not torch.pjrt.is_available() else b"0"
            torch.manual_seed(1)
            os.write(write, said)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 16) == b"1111"


def _child(queue, back):
    x, view = queue.get()
    x[0] = 5
    back.put((x.device.type, x.tolist(), view.tolist()))


def test_sent_to_a_spawned_process(device):
    context = torch.multiprocessing.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=_child, args=(queue, back))
    process.start()
    x = torch.arange(3.0, device=device)
    queue.put((x, x[:2]))
    try:
        assert back.get(timeout=60) == ("pjrt", [5, 1, 2], [5, 1])
    finally:
        process.join(30)
    assert x.tolist() == [0, 1, 2]


def test_share_memory_is_harmless(device):
    x = torch.ones(2, device=device)
    assert x.share_memory_() is x
    assert multiprocessing.current_process().name
