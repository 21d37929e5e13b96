"""What tests of counters start from."""

from __future__ import annotations

import pytest
import torch

from torch_pjrt.dispatch.install import forget_programs


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters at zero, nothing compiled, no disk cache."""
    from torch_pjrt.config import settings

    torch.zeros(1, device="pjrt")
    monkeypatch.setattr(settings, "cache_dir", "off")
    torch.pjrt.set_eager_mode("fused")
    forget_programs()
    torch.pjrt.reset_stats()
