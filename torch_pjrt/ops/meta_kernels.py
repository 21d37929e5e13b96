"""Meta kernels that torch lacks or has wrong: what an overload's results look like, as functions of meta tensors.

Results that an output_mask does not ask for are left out here and by the row. Loaded with the rows (registry.load_rows).
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from torch_pjrt.ops.metadata import OVERRIDES, meta_override

Tensor = torch.Tensor


def asked(mask: Any, *results: Tensor) -> tuple[Tensor, ...]:
    """The results that an output_mask asks for, in order."""
    return tuple(r for wanted, r in zip(mask, results, strict=True) if wanted)


def _batch_norm_eval(op: Any) -> Any:
    """torch's meta kernel with empty saved statistics in evaluation, as CPU gives them."""

    def kernel(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        results = list(op(*args, **kwargs))
        names = [a.name for a in op._schema.arguments]
        training = dict(zip(names, args), **kwargs).get("training", False)  # noqa: B905 - defaults are left out
        results[0] = results[0].contiguous(memory_format=suggest_memory_format(args[0]))
        if not training:
            results[1:3] = [r.new_empty(0) for r in results[1:3]]
        return tuple(results)

    return kernel


for _name in ("native_batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training"):
    meta_override(f"aten::{_name}.default")(_batch_norm_eval(getattr(torch.ops.aten, _name).default))
meta_override("aten::_native_batch_norm_legit.no_stats")(
    _batch_norm_eval(torch.ops.aten._native_batch_norm_legit.no_stats)
)


def _dense_first(op: Any) -> Any:
    """torch's meta kernel with a dense first result, as CPU gives it."""

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        first, *rest = op(self, *args, **kwargs)
        return (first.contiguous(memory_format=suggest_memory_format(first)), *rest)

    return kernel


meta_override("aten::nll_loss2d_forward.default")(_dense_first(torch.ops.aten.nll_loss2d_forward.default))


@meta_override("aten::nll_loss_forward.default")
def nll_loss_forward(self: Tensor, target: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """torch's meta kernel, but classes may be bytes."""
    return torch.ops.aten.nll_loss_forward.default(self, target.to(torch.int64), *args)


@meta_override("aten::_batch_norm_with_update_functional.default")
def batch_norm_with_update(input: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, *rest: Any) -> Any:
    """torch's meta kernel, but running statistics keep their dtype."""
    op = _dense_first(torch.ops.aten._batch_norm_with_update_functional.default)
    return (*op(input, weight, bias, mean, var, *rest)[:4], torch.empty_like(mean), torch.empty_like(var))


@meta_override("aten::multi_margin_loss_backward.default", "aten::multilabel_margin_loss_backward.default")
def like_self(grad_output: Tensor, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A gradient of self's size, dense."""
    return self.new_empty(self.shape)


@meta_override(*(f"pjrt::{n}_step.{o}" for n in ("adam", "adamw", "sgd", "adagrad") for o in ("default", "tensor_lr")))
def optimizer_step(*args: Any, **kwargs: Any) -> list[Tensor]:
    """The written tensors of one optimizer step, as they are: all but the step count, absent ones left out."""
    states = [a for a in args if not isinstance(a, (int, float, bool))]
    if len(states) > 3:  # all but SGD end with state_step
        states = states[:-1]
    return [torch.empty_like(t) for t in states if t is not None]


@meta_override("pjrt::amp_unscale.default")
def amp_unscale(self: Tensor, found_inf: Tensor, inv_scale: Tensor) -> list[Tensor]:
    """The gradient and the flag."""
    return [torch.empty_like(self), torch.empty_like(found_inf)]


def _index_put(op: Any) -> Any:
    """torch's meta kernel, but for masks, of which it asks how many elements are True."""

    def kernel(self: Tensor, indices: list[Tensor | None], *args: Any, **kwargs: Any) -> Tensor:
        if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
            return torch.empty_like(self)
        return op(self, indices, *args, **kwargs)

    return kernel


for _name in ("index_put", "_unsafe_index_put", "_index_put_impl"):
    meta_override(f"aten::{_name}.default")(_index_put(getattr(torch.ops.aten, _name).default))


@meta_override("aten::_scaled_dot_product_fused_attention_overrideable.default")
def attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
    """Output, logsumexp, seed and offset in their places; the two lengths are numbers, which the dispatcher knows."""
    output = (
        torch.empty_like(query)
        if query.shape[-1] == value.shape[-1]
        else query.new_empty((*query.shape[:-1], value.shape[-1]))
    )
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    return (
        output,
        query.new_empty(query.shape[:-1], dtype=wide),
        None,
        None,
        None,
        None,
        query.new_empty((), dtype=torch.int64),
        query.new_empty((), dtype=torch.int64),
        None,
    )


@meta_override("aten::_scaled_dot_product_fused_attention_overrideable_backward.default")
def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: list[bool],
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor | None, ...]:
    """The asked of the gradients, each like its operand."""
    operands = (query, key, value, attn_bias)
    return tuple(
        torch.empty_like(t) if wanted and t is not None else None
        for wanted, t in zip(grad_input_mask, operands, strict=True)
    )


@meta_override("aten::_thnn_fused_lstm_cell.default")
def lstm_cell(input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, *biases: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """(hy, cy, workspace)."""
    return cx.new_empty(cx.shape), cx.new_empty(cx.shape), input_gates.new_empty(input_gates.shape)


@meta_override("aten::_thnn_fused_lstm_cell_backward_impl.default")
def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    """(grad of gates, grad of cx, grad of the bias if there is one)."""
    bias = workspace.new_empty(workspace.shape[-1:]) if has_bias else None
    return workspace.new_empty(workspace.shape), cx.new_empty(cx.shape), bias


@meta_override("aten::_thnn_fused_gru_cell.default")
def gru_cell(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *biases: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """(hy, workspace)."""
    return hx.new_empty(hx.shape), hx.new_empty((*hx.shape[:-1], hx.shape[-1] * 5))


@meta_override("pjrt::recurrence.default")
def recurrence(gates: Tensor, state: list[Tensor], *args: Any, **kwargs: Any) -> list[Tensor]:
    """Outputs over time, then the last state's parts."""
    return [gates.new_empty((gates.shape[0], *state[0].shape)), *(s.new_empty(s.shape) for s in state)]


@meta_override("pjrt::linspace.default", "pjrt::logspace.default")
def points(start: Tensor, end: Tensor, steps: int, *args: Any, dtype: torch.dtype | None = None) -> Tensor:
    """One number per step."""
    return start.new_empty(steps, dtype=dtype or torch.get_default_dtype())


@meta_override("aten::_thnn_fused_gru_cell_backward.default")
def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """(grad of both gates, grad of hx, grads of both biases if there are some)."""
    width = workspace.shape[-1] // 5
    gates = (*workspace.shape[:-1], 3 * width)
    results = (workspace.new_empty(gates), workspace.new_empty(gates), grad_hy.new_empty(grad_hy.shape))
    return *results, *(workspace.new_empty(3 * width) if has_bias else None for _ in range(2))


@meta_override("aten::_masked_softmax.default")
def masked_softmax(self: Tensor, mask: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Like self."""
    return self.new_empty(self.shape)


@meta_override("aten::_masked_softmax_backward.default")
def masked_softmax_backward(grad_output: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Like the gradient."""
    return grad_output.new_empty(grad_output.shape)


@meta_override("pjrt::batch_norm_train.default")
def batch_norm_train(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """native_batch_norm in training, then the new running statistics."""
    results = OVERRIDES["aten::native_batch_norm.default"](
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return *results, running_mean.new_empty(running_mean.shape), running_var.new_empty(running_var.shape)


@meta_override("aten::histogram.bin_ct")
def histogram_counts(self: Tensor, bins: int = 100, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """Counts and edges."""
    return self.new_empty(bins), self.new_empty(bins + 1)


@meta_override("aten::histogram.bins_tensor")
def histogram_edges(self: Tensor, bins: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """Counts and the edges as given."""
    return self.new_empty(bins.numel() - 1), self.new_empty(bins.numel())


@meta_override("aten::_histogramdd_bin_edges.default")
def histogramdd_bin_edges(self: Tensor, bins: list[int], **kwargs: Any) -> list[Tensor]:
    """One vector of edges for each dim."""
    return [self.new_empty(n + 1) for n in bins]


@meta_override("aten::_histogramdd_from_bin_cts.default", "aten::_histogramdd_from_bin_tensors.default")
def histogramdd(self: Tensor, bins: list[Any], **kwargs: Any) -> Tensor:
    """One count for each box of bins."""
    return self.new_empty([n if isinstance(n, int) else n.numel() - 1 for n in bins])


@meta_override("aten::where.self")
def where(condition: Tensor, self: Tensor, other: Tensor) -> Tensor:
    """As torch's, and a uint8 condition is accepted as on the CPU."""
    return torch.ops.aten.where.self(condition.to(torch.bool), self, other)


@meta_override("aten::glu_backward.default")
def glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    """Like the input."""
    return torch.empty_like(self, memory_format=torch.contiguous_format)


@meta_override("aten::glu_jvp.default", "aten::glu_backward_jvp.default")
def glu_jvp(first: Tensor, *args: Any) -> Tensor:
    """Like the first argument."""
    return torch.empty_like(first)


@meta_override("aten::_grouped_mm.default")
def grouped_mm(
    self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """One matrix per group, or the groups beside each other, dense; torch's own refuses float32."""
    per_group = self.dim() == mat2.dim()
    lead = [self.size(0) if offs is None else offs.size(0)] if per_group else []
    return self.new_empty([*lead, self.size(-2), mat2.size(-1)], dtype=out_dtype or self.dtype)


def _refuse_empty(op: Any) -> Any:
    """torch's meta kernel, after the check that CPU torch makes: there is no largest of nothing."""

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.numel() == 0 and (not args or args[0] is None) and kwargs.get("dim") is None:
            raise IndexError(
                f"{op._schema.name.removeprefix('aten::')}(): Expected reduction dim to be specified for input.numel() == 0."
            )
        return op(self, *args, **kwargs)

    return kernel


for _name in ("max", "min", "argmax", "argmin", "aminmax"):
    meta_override(f"aten::{_name}.default")(_refuse_empty(getattr(torch.ops.aten, _name).default))


def suggest_memory_format(x: Tensor) -> torch.memory_format:
    """The format that torch's kernels give a result like x: channels_last if its strides grow that way, else row-major."""
    kinds = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.dim() not in kinds or x.stride(1) == 0:
        return torch.contiguous_format
    least = 0
    for d in (1, *reversed(range(2, x.dim())), 0):
        if x.shape[d] == 0 or x.stride(d) < least or (d == 0 and least == x.stride(1)):
            return torch.contiguous_format
        least = x.stride(d) * max(x.shape[d], 1)
    return kinds[x.dim()]


def column_major(x: Tensor) -> Tensor:
    """An empty tensor of x's shape whose matrices are stored by columns, as LAPACK leaves them."""
    return torch.empty_like(x.mT, memory_format=torch.contiguous_format).mT


@meta_override("aten::_linalg_svd.default")
def linalg_svd(A: Tensor, full_matrices: bool = False, compute_uv: bool = True, **kwargs: Any) -> tuple[Tensor, ...]:
    """U and V^H by columns (torch's own kernel answers for another device's library)."""
    u, s, vh = torch.ops.aten._linalg_svd.default(A, full_matrices, compute_uv)
    return u, s, column_major(vh) if vh.dim() > 1 else vh


@meta_override("aten::linalg_eig.default")
def linalg_eig(self: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvectors by columns."""
    values, vectors = torch.ops.aten.linalg_eig.default(self)
    return values, column_major(vectors)


def _by_columns(op: Any) -> Any:
    """The meta kernel of an out= overload that gives empty outputs the strides of the functional results, as on the CPU."""
    outs = [a.name for a in op._schema.arguments if a.is_out]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(NotImplementedError):
            op(*args, **kwargs)  # refuses outputs of other dtypes
        functional = OVERRIDES.get(f"{op._schema.name}.default", op._overloadpacket.default)
        return functional(*args, **{k: v for k, v in kwargs.items() if k not in outs})

    return kernel


for _op in (
    torch.ops.aten.linalg_eig.out,
    torch.ops.aten._linalg_eigh.eigenvalues,
    torch.ops.aten.linalg_qr.out,
    torch.ops.aten.linalg_lu_factor_ex.out,
    torch.ops.aten.linalg_ldl_factor_ex.out,
    torch.ops.aten.geqrf.a,
    torch.ops.aten.linalg_householder_product.out,
    torch.ops.aten.ormqr.out,
    torch.ops.aten.lu_solve.out,
    torch.ops.aten.linalg_lu_solve.out,
    torch.ops.aten.linalg_ldl_solve.out,
):
    meta_override(f"{_op._schema.name}.{_op._overloadname}")(_by_columns(_op))


@meta_override("aten::cholesky_inverse.out")
def cholesky_inverse_out(self: Tensor, upper: bool = False, *, out: Tensor) -> Tensor:
    """By columns, as without an output."""
    return column_major(self)


@meta_override("aten::conj_physical.out")
def conj_physical_out(self: Tensor, *, out: Tensor) -> Tensor:
    """Like self, as without an output."""
    return torch.empty_like(self)


@meta_override("aten::triangular_solve.X")
def triangular_solve_out(
    self: Tensor, A: Tensor, *args: Any, X: Tensor, M: Tensor, **kwargs: Any
) -> tuple[Tensor, ...]:
    """By columns, as without outputs."""
    return torch.ops.aten.triangular_solve.default(self, A, *args, **kwargs)


@meta_override("aten::nonzero_static.default")
def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """[size, rank], row-major."""
    return self.new_empty((size, self.dim()), dtype=torch.int64)


@meta_override("aten::max_unpool2d.default")
def max_unpool2d(self: Tensor, indices: Tensor, output_size: list[int]) -> Tensor:
    """In self's memory format."""
    out = torch.ops.aten.max_unpool2d.default(self, indices, output_size)
    return out.contiguous(memory_format=suggest_memory_format(self))


@meta_override("aten::multilabel_margin_loss_forward.default")
def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """One number for one sample, reduced or not; and the targets' mask."""
    whole = reduction != 0 or target.dim() <= 1
    return self.new_empty(() if whole else target.shape[:1]), self.new_empty(target.shape)


@meta_override("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor")
def normal(mean: Tensor | float, std: Tensor | float, **kwargs: Any) -> Tensor:
    """Row-major, in the broadcast shape."""
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    return tensors[0].new_empty(torch.broadcast_shapes(*(t.shape for t in tensors)))


@meta_override("aten::geqrf.default")
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    """The factor by columns, and one factor for each reflection."""
    return column_major(self), self.new_empty((*self.shape[:-2], min(self.shape[-2:])))


@meta_override("aten::_standard_gamma_grad.default", "aten::_dirichlet_grad.default")
def like_first(first: Tensor, *args: Any) -> Tensor:
    """Like the first operand, row-major."""
    return first.new_empty(first.shape)


@meta_override("aten::pow.Scalar")
def pow_of_number(self: Any, exponent: Tensor) -> Tensor:
    """A power of a number is row-major, however the exponent lies."""
    return torch.ops.aten.pow.Scalar(self, exponent).contiguous()


@meta_override("aten::ldexp.Tensor")
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """Laid out as self * 2 ** other; the CPU takes the power as an operation of its own in float32 only."""
    like = torch.ops.aten.mul.Tensor(self, power := pow_of_number(2.0, other))
    return like if like.dtype == torch.float32 else torch.ops.aten.mul.Tensor(self, other.to(power.dtype))


@meta_override("aten::_scaled_mm.default")
def scaled_mm(self: Tensor, mat2: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """torch's, which refuses operands that cuBLAS would, of any strides, as the CPU takes them."""
    return torch.ops.aten._scaled_mm.default(self.contiguous(), mat2.t().contiguous().t(), *args, **kwargs)


@meta_override("aten::native_dropout_backward.default")
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Laid out as the product of the gradient and the mask."""
    return torch.ops.aten.mul.Tensor(grad_output, mask.to(grad_output.dtype) * scale)
