"""The device for the contract tests: registered as `import torch` does it where the package is installed."""

import pytest
import torch

from torch_pjrt import _autoload

_autoload.autoload()


@pytest.fixture
def device() -> torch.device:
    """pjrt:0 under whatever name it has."""
    return torch.device(_autoload.registered(), 0)
