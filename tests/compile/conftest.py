"""Every test of torch.compile starts with a Dynamo that knows nothing, counters at zero, and no traces from the disk."""

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
    with torch._functorch.config.patch(enable_autograd_cache=False):  # a variable would hold for tests of them too
        yield
    torch._dynamo.reset()
