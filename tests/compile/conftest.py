"""Every test of torch.compile starts with a Dynamo that knows nothing, and with counters at zero."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Dynamo forgets what other tests compiled."""
    torch.ones(1, device="pjrt").cpu()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.pjrt.reset_stats()
    yield
    torch._dynamo.reset()
