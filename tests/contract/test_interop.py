"""DLPack, NumPy and JAX."""

import numpy as np
import pytest
import torch
from torch.utils import dlpack

import torch_pjrt.tensor.transfer as transfer


def test_alias_through_from_dlpack(device):
    x = torch.arange(4.0, device=device)
    y = torch.from_dlpack(x)
    assert y.device == device
    y[0] = 7
    assert x.tolist() == [7, 1, 2, 3]
    assert torch.from_dlpack(x, copy=True).untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert torch.from_dlpack(x, device="cpu").tolist() == [7, 1, 2, 3]
    with pytest.raises(ValueError, match="copy"):
        torch.from_dlpack(x, device="cpu", copy=False)


def test_to_numpy_is_read_only(device):
    x = torch.arange(4.0, device=device)
    kind, index = x.__dlpack_device__()
    assert index == 0
    if kind != dlpack.DLDeviceType.kDLCPU:
        pytest.skip("not host memory")
    array = np.from_dlpack(x)
    assert array.tolist() == [0, 1, 2, 3] and not array.flags.writeable
    x.add_(1)
    assert array.tolist() == [0, 1, 2, 3] and x.tolist() == [1, 2, 3, 4]
    assert np.from_dlpack(x[::2]).tolist() == [1, 3]


def test_onto_the_device(device):
    assert torch.from_dlpack(np.arange(3), device="pjrt").tolist() == [0, 1, 2]
    assert torch.from_dlpack(torch.arange(3), device=device).device == device
    jax = pytest.importorskip("jax")
    array = jax.device_put(np.arange(3, dtype=np.float32))
    x = torch.from_dlpack(array, device="pjrt")
    assert x.device == device and x.tolist() == [0, 1, 2]
    x.add_(1)
    assert array.tolist() == [0, 1, 2] and x.tolist() == [1, 2, 3]


def test_capsules(device):
    x = torch.arange(3.0, device=device)
    back = dlpack.from_dlpack(dlpack.to_dlpack(x))
    back[0] = 5
    assert back.tolist() == [5, 1, 2] and x.tolist() == [0, 1, 2]


def test_refusals(device):
    with pytest.raises(BufferError, match="gradient"):
        torch.ones(2, device=device, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="conjugate"):
        torch.ones(2, dtype=torch.complex64, device=device).conj().__dlpack__()


def test_other_devices_untouched():
    x = torch.arange(3)
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr() and np.from_dlpack(x).tolist() == [0, 1, 2]
    assert x.__dlpack_device__()[0] == dlpack.DLDeviceType.kDLCPU


def test_jax_arrays(device):
    x = torch.arange(4.0, device=device)
    array = transfer.to_jax(x)
    x.mul_(2)
    assert np.asarray(array).tolist() == [0, 1, 2, 3] and x.tolist() == [0, 2, 4, 6]
    assert transfer.from_jax(array).tolist() == [0, 1, 2, 3]
