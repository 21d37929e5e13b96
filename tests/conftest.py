"""What all tests share: no disk cache, so that counts of compiles are counts; what XLA made of a program."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("TORCH_PJRT_CACHE_DIR", "off")


@pytest.fixture
def hlo() -> Iterator[list[str]]:
    """The optimised texts of what is compiled."""
    from torch_pjrt.config import settings
    from torch_pjrt.pjrt import compiler

    texts: list[str] = []
    watch = lambda compiled: texts.append(compiled.hlo)
    compiler.watchers.append(watch)
    with settings.override(cache_dir="off"):
        yield texts
    compiler.watchers.remove(watch)
