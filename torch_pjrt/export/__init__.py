"""`torch_pjrt.export(model, args, path)` and `torch_pjrt.load(path)`: a model as a folder that needs neither torch nor us.

The package is callable, because the function and the folder of its code have one name.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As torch_pjrt.export.write.export."""
        from torch_pjrt.export.write import export

        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
