"""A table of kernels that are not a row: each module that writes some has one, and names overloads as it defines them.

Who registers them, and under which dispatch key, is up to the module (special.py, data_dependent.py, sparse.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Kernel = Callable[..., Any]


class KernelTable(dict[str, Kernel]):
    """Overload ("empty.memory_format", "sum") -> kernel."""

    def kernel(self, *names: str) -> Callable[[Kernel], Kernel]:
        """Decorator: the function below is the kernel of these overloads."""

        def register(fn: Kernel) -> Kernel:
            for name in names:
                self[name] = fn
            return fn

        return register
