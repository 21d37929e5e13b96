"""Streams, events and honest timing."""

import copy
import time

import pytest
import torch


def test_stream_is_a_torch_stream(device):
    s, t = torch.Stream(device="pjrt"), torch.pjrt.Stream(priority=-1)
    assert isinstance(s, torch.Stream) and isinstance(t, torch.Stream) and s.device == device
    assert s != t and s == s and len({s, t}) == 2
    assert issubclass(type(s), torch.Stream)
    assert s.query()
    s.synchronize()
    s.wait_stream(t)
    event = s.record_event()
    s.wait_event(event)
    event.wait(s)
    assert not s.is_capturing()


def test_current_stream(device):
    default = torch.pjrt.default_stream()
    assert torch.pjrt.current_stream() == default == torch.accelerator.current_stream()
    s = torch.pjrt.Stream()
    with torch.pjrt.stream(s):
        assert torch.pjrt.current_stream() == s
        with s, torch.pjrt.stream(None):
            assert torch.accelerator.current_stream() == s
    assert torch.pjrt.current_stream() == default


def test_event_times_are_of_the_device(device):
    x = torch.ones(600, 600, device=device)
    (x @ x).cpu()
    a, b = torch.Event("pjrt", enable_timing=True), torch.Event(device, enable_timing=True)
    a.record()
    start = time.perf_counter()
    for _ in range(10):
        x = x @ x * 1e-3
    b.record()
    torch.accelerator.synchronize()
    wall = (time.perf_counter() - start) * 1e3
    assert 0 < a.elapsed_time(b) <= wall * 1.05
    assert b.query() and isinstance(a, torch.Event) and a.device == device


def test_event_misuse():
    a, b = torch.pjrt.Event(), torch.pjrt.Event(enable_timing=True)
    with pytest.raises(ValueError):
        a.elapsed_time(b)
    with pytest.raises(ValueError):
        b.elapsed_time(torch.pjrt.Event(enable_timing=True))
    a.synchronize()
    a.record()
    a.synchronize()
    with pytest.raises(NotImplementedError):
        torch.pjrt.Event(interprocess=True)


def test_record_stream_is_harmless(device):
    x = torch.ones(3, device=device)
    x.record_stream(torch.pjrt.current_stream())
    assert copy.copy(x).sum().item() == 3
