"""The module torch.pjrt: what frameworks read off a device module."""

import pytest
import torch

READ_BY_FRAMEWORKS = """
is_available device_count current_device set_device is_initialized _initialized init _lazy_init synchronize device
stream StreamContext Stream Event current_stream default_stream set_stream manual_seed manual_seed_all seed
initial_seed get_rng_state set_rng_state get_rng_state_all set_rng_state_all default_generators _is_in_bad_fork
empty_cache mem_get_info memory_allocated max_memory_allocated memory_reserved max_memory_reserved
reset_peak_memory_stats reset_accumulated_memory_stats memory_stats memory_summary get_device_name
get_device_properties get_device_capability is_bf16_supported get_amp_supported_dtype stats reset_stats
explain_recompiles cache_stats set_eager_mode get_eager_mode eager_mode fail_on amp memory random
""".split()


@pytest.mark.parametrize("name", READ_BY_FRAMEWORKS)
def test_has(name):
    assert getattr(torch.pjrt, name) is not None


def test_one_device(device):
    assert torch.pjrt.is_available() and torch.pjrt.device_count() == 1 and torch.pjrt.current_device() == 0
    assert torch.pjrt._initialized and torch.pjrt.is_initialized() and not torch.pjrt._is_in_bad_fork()
    torch.pjrt.set_device(0)
    torch.pjrt.set_device(device)
    with torch.pjrt.device(0), torch.pjrt.device("pjrt:0"), torch.pjrt.device(device), torch.pjrt.device(-1):
        pass
    with pytest.raises(RuntimeError, match="pjrt:0"):
        torch.pjrt.set_device(1)
    with pytest.raises(ValueError, match="cuda"):
        torch.pjrt.set_device("cuda:0")


def test_properties():
    props = torch.pjrt.get_device_properties(0)
    assert props.total_memory > 1 << 20 and isinstance(props.name, str)
    assert (props.major, props.minor) == torch.pjrt.get_device_capability()
    assert torch.pjrt.get_device_name() == props.name


def test_generated_methods(device):
    x = torch.ones(2)
    assert x.pjrt().is_pjrt and not x.is_pjrt and x.pjrt().device == device
    module = torch.nn.Linear(2, 2).pjrt()
    assert module.weight.device == device
    assert x.to(0).device == device and torch.device(0) == device
    assert torch.empty(2, device="pjrt").get_device() == 0


def test_default_device_and_context(device):
    with torch.device("pjrt"):
        assert torch.zeros(3).device == device
        assert torch.nn.Linear(2, 2).weight.device == device
    torch.set_default_device("pjrt")
    try:
        assert torch.rand(2).device == device and torch.tensor([1.0]).device == device
    finally:
        torch.set_default_device(None)
    assert torch.zeros(1).device.type == "cpu"


def test_eager_modes(device):
    before = torch.pjrt.get_eager_mode()
    for mode in ("debug", "strict", "fused"):
        with torch.pjrt.eager_mode(mode):
            assert torch.pjrt.get_eager_mode() == mode
            assert (torch.ones(3, device=device) * 2).sum().item() == 6
    assert torch.pjrt.get_eager_mode() == before
    with torch.pjrt.set_eager_mode("debug"):
        assert torch.pjrt.get_eager_mode() == "debug"
    assert torch.pjrt.get_eager_mode() == before
    with pytest.raises(ValueError):
        torch.pjrt.set_eager_mode("turbo")
    assert torch.pjrt.get_eager_mode() == before


def test_counters(device):
    torch.pjrt.reset_stats()
    (torch.ones(7, device=device) + 1).cpu()
    found = torch.pjrt.stats()
    assert found["programs_launched"] >= 1
    assert set(torch.pjrt.cache_stats()) <= set(found)
    assert isinstance(torch.pjrt.explain_recompiles(), str)


def test_index_other_than_zero_is_refused_not_aborted():
    with pytest.raises(RuntimeError):
        torch.ones(1, device="pjrt:1")


def test_numpy_of_a_device_tensor_raises_as_torch_does(device):
    with pytest.raises(TypeError, match="cpu"):
        torch.ones(2, device=device).numpy()
