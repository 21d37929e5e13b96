"""What all tests share: no disk cache, so that counts of compiles are counts."""

from __future__ import annotations

import os

os.environ.setdefault("TORCH_PJRT_CACHE_DIR", "off")
