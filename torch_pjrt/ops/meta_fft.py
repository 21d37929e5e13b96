"""Meta kernels of the Fourier transforms: strides as CPU torch gives them.

torch's own meta kernels take a bare meta tensor for a CUDA one and answer with the strides of cuFFT's plans. An empty
output becomes contiguous, as on the CPU. Loaded with the rows (registry.load_rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt.ops.metadata import meta_override

Tensor = torch.Tensor


def _falling(x: Tensor, dims: Sequence[int]) -> list[int]:
    """Dims by falling stride."""
    return sorted(dims, key=x.stride, reverse=True)


def _transformed(self: Tensor, dims: list[int], sizes: list[int], dtype: torch.dtype) -> Tensor:
    """What MKL leaves: dense, the untransformed dims outside by falling stride, the transformed ones inside as ordered."""
    if not torch.backends.mkl.is_available():
        return self.new_empty(sizes, dtype=dtype)
    order = _falling(self, [d for d in range(self.dim()) if d not in dims]) + dims
    dense = self.new_empty([sizes[d] for d in order], dtype=dtype)
    return dense.permute([order.index(d) for d in range(self.dim())])


def _positive(self: Tensor, dim: Sequence[int]) -> list[int]:
    return [d % max(self.dim(), 1) for d in dim]


@meta_override("aten::_fft_c2c.default")
def fft_c2c(self: Tensor, dim: list[int], normalization: int, forward: bool) -> Tensor:
    """Complex to complex."""
    if not dim:
        return self.clone()
    return _transformed(self, _falling(self, _positive(self, dim)), list(self.shape), self.dtype)


@meta_override("aten::_fft_r2c.default")
def fft_r2c(self: Tensor, dim: list[int], normalization: int, onesided: bool) -> Tensor:
    """Real to complex: the last of the dims holds half of the frequencies where only one side is asked for."""
    *others, last = _positive(self, dim)
    sizes = list(self.shape)
    if onesided:
        sizes[last] = sizes[last] // 2 + 1
    return _transformed(self, [*_falling(self, others), last], sizes, self.dtype.to_complex())


@meta_override("aten::_fft_c2r.default")
def fft_c2r(self: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    """Complex to real: the other dims first, then the last."""
    *others, last = _positive(self, dim)
    inner = fft_c2c(self, others, normalization, False) if others else self
    sizes = list(self.shape)
    sizes[last] = last_dim_size
    return _transformed(inner, [last], sizes, self.dtype.to_real())


def _row_major(functional: Any) -> Any:
    """The meta kernel of an out= overload: empty outputs become contiguous, whatever the functional result is."""
    return lambda *args, out, **kwargs: out.new_empty(functional(*args, **kwargs).shape)


for _name, _functional in (("c2c", fft_c2c), ("r2c", fft_r2c), ("c2r", fft_c2r)):
    meta_override(f"aten::_fft_{_name}.out")(_row_major(_functional))
