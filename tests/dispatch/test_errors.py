"""Each user mistake gives its own exception: what happened, where, what to do. Nothing aborts the process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import torch_pjrt.errors as errors

MODES = ["debug", "strict", "fused"]


@pytest.mark.parametrize("mode", MODES)
def test_index_out_of_range(mode: str) -> None:
    with torch.pjrt.eager_mode(mode):
        with pytest.raises(IndexError, match="out of range"):
            torch.arange(4, device="pjrt")[torch.tensor([9], device="pjrt")].cpu()
        with pytest.raises(IndexError, match="test_errors.py"):
            F.cross_entropy(torch.ones(3, 5, device="pjrt"), torch.tensor([-1, -1, 3], device="pjrt")).cpu()
        assert torch.arange(4, device="pjrt")[torch.tensor([-1], device="pjrt")].item() == 3


def test_mixed_devices() -> None:
    with pytest.raises(errors.DeviceMismatchError, match=r"cpu tensor of shape \[2, 2\]"):
        torch.ones(2, 2, device="pjrt") @ torch.ones(2, 2)


def test_bad_shapes_have_torch_s_text() -> None:
    with pytest.raises(RuntimeError, match="broadcast"):
        torch.ones(2, 3, device="pjrt") + torch.ones(2, 4, device="pjrt")
    with pytest.raises(RuntimeError, match="broadcast shape"):
        torch.ones(2, 1, device="pjrt").add_(torch.ones(2, 4, device="pjrt"))


def test_overlapping_write() -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, device="pjrt").expand(3).add_(1)


def test_one_number_for_elements_that_share_memory() -> None:
    """fill_ and zero_ write the same everywhere, so that the order does not matter."""
    base = torch.arange(6.0, device="pjrt").reshape(2, 3)
    base[:, :1].expand(2, 4).fill_(7)
    base[0, 2].expand(5).zero_()
    assert base.tolist() == [[7, 1, 0], [7, 4, 5]]


def test_bad_cast() -> None:
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        torch.ones(2, dtype=torch.int64, device="pjrt").add_(1.5)


@pytest.fixture
def twice() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """A user's own operator that only the CPU knows."""
    library = torch.library.Library("tests_fallback", "DEF")  # noqa: TOR901
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    yield torch.ops.tests_fallback.twice
    library._destroy()


def test_fallback_is_right_and_counted(twice: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.arange(6.0, device="pjrt").reshape(2, 3).T
    before = torch.pjrt.stats()["fallbacks"].get("tests_fallback::twice.default", 0)
    result = twice(x)
    assert result.device == x.device and result.cpu().equal(x.cpu() * 2)
    assert torch.pjrt.stats()["fallbacks"]["tests_fallback::twice.default"] == before + 1


def test_forbidden_fallback(monkeypatch: pytest.MonkeyPatch, twice: Callable[[torch.Tensor], torch.Tensor]) -> None:
    from torch_pjrt.config import settings

    monkeypatch.setattr(settings, "cpu_fallback", "error")
    with pytest.raises(errors.FallbackError, match="would run on the CPU"):
        twice(torch.ones(3, 3, device="pjrt"))


def test_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="no room for a tensor of 17592186044416 bytes"):
        torch.empty(1 << 42, device="pjrt")[5].item()
    with pytest.raises(errors.OutOfMemoryError, match="test_errors.py"):
        torch.ones(8, device="pjrt").expand(1 << 40, 8).contiguous()[3].cpu()
    assert torch.ones(3, device="pjrt").sum().item() == 3


def test_missing_plugin() -> None:
    env = dict(os.environ, TORCH_PJRT_PLATFORM="tpu", JAX_PLATFORMS="")
    code = "import torch; torch.ones(1, device='pjrt').cpu()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MissingPluginError" in done.stderr and 'pip install "torch-pjrt[tpu]"' in done.stderr


def test_failed_value_explains_itself() -> None:
    from torch_pjrt.tensor.storage import cell_of

    x = torch.ones(2, device="pjrt") + 1
    torch.pjrt.synchronize()
    value = cell_of(x).value
    value.index, value.error = -3, RuntimeError("lost")
    with pytest.raises(errors.RuntimeFailedError, match="lost"):
        (x + 1).cpu()


def test_use_after_fork_is_refused() -> None:
    torch.ones(1, device="pjrt").cpu()
    pid = os.fork()
    if pid == 0:
        try:
            torch.ones(1, device="pjrt").cpu()
        except errors.ForkedProcessError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_dtype_that_xla_lacks_is_named_by_operators_too() -> None:
    half = torch.ones(2, dtype=torch.float16, device="pjrt")
    with pytest.raises(errors.UnsupportedDtypeError, match=r"(?s)complex32.*Use torch.complex64"):
        half * (1 + 2j)


def test_code_without_a_hash_calls_operators() -> None:
    """Dynamo keeps slices among the constants of its code, and before Python 3.12 they have no hash."""

    def one_more(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    one_more.__code__ = one_more.__code__.replace(co_consts=(*one_more.__code__.co_consts, slice(1, 2)))
    assert one_more(torch.ones(2, device="pjrt")).tolist() == [2.0, 2.0]
