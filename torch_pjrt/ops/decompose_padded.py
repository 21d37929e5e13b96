"""What nn.TransformerEncoder's fast path gets in the place of a strided nested tensor: the padded batch with its mask.

For inference torch turns a padded batch into a nested tensor, so that its results are zero where the batch was padded. A
PaddedBatch goes through the same layers as dense operators, tells attention what is padding, and is cut to zeros at the end.
What is neither attention nor works on each position by itself is refused, since it would take padding for data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from torch_pjrt.errors import UnsupportedOpError
from torch_pjrt.ops.decompose import decomposition

Tensor = torch.Tensor

# Functions that work on each position of a sequence by itself.
_BY_POSITION: frozenset[Any] = frozenset(
    (F.linear, F.layer_norm, F.relu, F.gelu, F.dropout, torch.relu, torch.layer_norm, torch._C._nn.linear, torch._C._nn.gelu,
     torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.to, Tensor.clone, Tensor.contiguous, Tensor.detach)
)  # fmt: skip


class PaddedBatch(Tensor):
    """[B, L, ...] (or [L, B, ...] once transposed) and `keep` [B, L]: True where there is data."""

    keep: Tensor
    batch_dim: int

    @staticmethod
    def over(dense: Tensor, keep: Tensor, batch_dim: int = 0) -> PaddedBatch:
        """A batch over a dense tensor."""
        made = dense.as_subclass(PaddedBatch)
        made.keep, made.batch_dim = keep, batch_dim
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        batch = first if isinstance(first, PaddedBatch) else next(a for a in args if isinstance(a, PaddedBatch))
        with torch._C.DisableTorchFunctionSubclass():
            keep, batch_dim = batch.keep, batch.batch_dim
            own = _OWN.get(func)
            if own is not None:
                return own(batch, *_dense(args[1:]), **_dense(kwargs))
            result = func(*_dense(args), **_dense(kwargs))
            if not isinstance(result, Tensor):
                return result
            if func in _BY_POSITION:
                return cls.over(result, keep, batch_dim)
        raise UnsupportedOpError(
            f"{getattr(func, '__name__', func)} was called on the padded batch inside of nn.TransformerEncoder's fast path",
            todo="Make the encoder with enable_nested_tensor=False, or call torch.backends.mha.set_fastpath_enabled(False).",
        )


def _dense(value: Any) -> Any:
    return tree_map(lambda x: x.as_subclass(Tensor) if isinstance(x, PaddedBatch) else x, value)


def _attention(batch: PaddedBatch, *args: Any, key_padding_mask: None = None, **kwargs: Any) -> tuple[Any, Any]:
    padding = batch.keep.logical_not()
    attend: Any = F.multi_head_attention_forward
    result, weights = attend(_dense(batch), *args, key_padding_mask=padding, **kwargs)
    return PaddedBatch.over(result, batch.keep, batch.batch_dim), weights


def _transpose(batch: PaddedBatch, dim0: int, dim1: int) -> PaddedBatch:
    if {dim0, dim1} != {0, 1}:
        raise UnsupportedOpError("A padded batch can be transposed between its first two dims only")
    return PaddedBatch.over(_dense(batch).transpose(0, 1), batch.keep, 1 - batch.batch_dim)


def _padded(batch: PaddedBatch, padding: float, output_size: Any = None) -> Tensor:
    """Dense, with `padding` where there was no data: if all data comes first, else torch would not have come this way."""
    keep = batch.keep
    aligned = (keep[:, :-1] | keep[:, 1:].logical_not()).all()
    fill = (keep.logical_not() & aligned).unsqueeze(-1)
    return _dense(batch).masked_fill(fill, padding)  # type: ignore[no-any-return]


_OWN: dict[Any, Callable[..., Any]] = {
    F.multi_head_attention_forward: _attention,
    Tensor.transpose: _transpose,
    torch.transpose: _transpose,
    Tensor.to_padded_tensor: _padded,
}


@decomposition("aten::_nested_tensor_from_mask_left_aligned.default")
def left_aligned(t: Tensor, mask: Tensor) -> bool:
    """True without a look at the mask, which would be a host read: a PaddedBatch bears any, and asks at its end."""
    return True


@decomposition("aten::_nested_tensor_from_mask.default")
def nested_from_mask(t: Tensor, mask: Tensor, mask_check: bool = True) -> Tensor:
    """A padded batch in the place of a nested tensor."""
    return PaddedBatch.over(t, mask)
