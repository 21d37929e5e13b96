"""torch.accelerator, whole."""

import pytest
import torch


def test_identity(device):
    acc = torch.accelerator
    assert acc.current_accelerator().type == device.type and acc.is_available() and acc.device_count() == 1
    assert acc.current_accelerator(check_available=True).type == device.type
    assert acc.current_device_index() == 0
    acc.set_device_index(0)
    acc.set_device_index(device)
    with acc.device_index(0), acc.device_index(None):
        assert acc.current_device_index() == 0
    with pytest.raises(RuntimeError, match="ordinal"):
        acc.set_device_index(3)
    assert torch.get_device_module() is torch.pjrt


def test_streams(device):
    acc = torch.accelerator
    stream = torch.Stream(device)
    before = acc.current_stream()
    acc.set_stream(stream)
    assert acc.current_stream() == stream
    acc.set_stream(before)
    acc.synchronize()
    acc.synchronize(device)


def test_memory(device):
    acc = torch.accelerator
    torch.ones(1, device=device).cpu()
    acc.empty_cache()
    base = acc.memory_allocated()
    x = torch.empty(1 << 20, device=device)
    assert acc.memory_allocated() - base == 4 << 20
    assert acc.memory_stats()["allocated_bytes.all.current"] == acc.memory_allocated()
    assert acc.memory_reserved() >= acc.memory_allocated()
    del x
    acc.empty_cache()
    assert acc.memory_allocated() <= base + 1024
    assert acc.max_memory_allocated() >= base + (4 << 20) and acc.max_memory_reserved() >= acc.max_memory_allocated()
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == acc.memory_allocated()
    acc.reset_accumulated_memory_stats()
    acc.empty_host_cache()
    free, total = acc.get_memory_info()
    assert 0 < free <= total


def test_capability():
    assert torch.bfloat16 in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_module_memory_figures(device):
    x = torch.ones(1024, device=device)
    assert torch.pjrt.memory_allocated() >= x.nbytes
    assert torch.pjrt.memory_stats()["allocated_bytes.all.peak"] >= x.nbytes
    assert "allocated" in torch.pjrt.memory_summary()
    free, total = torch.pjrt.mem_get_info()
    assert 0 < free <= total
