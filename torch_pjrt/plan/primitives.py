"""What one primitive of JAX costs: floating point operations, and how it meets its neighbours in a fused program.

Owns the table of kinds and the counting rules; graph.py walks the program, fusion.py groups it. Counts are those that XLA's
own cost analysis uses where it has a rule: two operations for each multiply and add of a product, one for each element of
an elementwise operation, and of each element that a reduction reads.
"""

from __future__ import annotations

import math
from typing import Any

# How a primitive meets its neighbours.
FREE = "free"  # moves no data of its own: a view, a constant, a broadcast
FUSED = "fused"  # elementwise, or a rearrangement, that a compiler computes inside its consumer
REDUCE = "reduce"  # takes producers in, and writes its result
HEAVY = "heavy"  # reads from memory and writes to memory

_FREE = frozenset("reshape squeeze expand_dims broadcast_in_dim iota stop_gradient optimization_barrier".split())
FREE_NAMES = _FREE
_SILENT = frozenset(  # fused, but no floating point work
    """transpose convert_element_type bitcast_convert_type slice dynamic_slice rev pad concatenate select_n copy
    reduce_precision real imag broadcast split narrow""".split()
)
_REDUCE = frozenset(
    """reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor reduce argmax argmin
    cumsum cumprod cummax cummin cumlogsumexp""".split()
)
_HEAVY = frozenset(
    """dot_general conv_general_dilated ragged_dot ragged_dot_general gather scatter scatter-add scatter_add scatter_mul
    scatter_min scatter_max dynamic_update_slice sort top_k approx_top_k fft rng_bit_generator random_bits threefry2x32
    cholesky lu qr eigh svd triangular_solve householder_product scan while cond reduce_window reduce_window_sum
    reduce_window_max reduce_window_min select_and_scatter_add select_and_gather_add custom_call pure_callback
    attention""".split()
)
# A slice of its operand is all that these read.
READS_RESULT_ONLY = frozenset("slice dynamic_slice gather".split())
# These pass their one operand on in another form, which a product's kernel does while it reads.
TRANSPARENT = _FREE | frozenset("transpose convert_element_type slice dynamic_slice bitcast_convert_type copy".split())
MATMULS = frozenset("dot_general conv_general_dilated ragged_dot ragged_dot_general".split())


def kind(name: str) -> str:
    """FREE, FUSED, REDUCE or HEAVY. What is not in a table is elementwise, as most primitives are."""
    if name in _FREE:
        return FREE
    if name in _REDUCE:
        return REDUCE
    if name in _HEAVY:
        return HEAVY
    return FUSED


def size(shape: tuple[int, ...]) -> int:
    """Elements of a shape."""
    return math.prod(shape)


def nbytes(aval: Any) -> int:
    """Bytes of an abstract value; 0 for tokens and the like."""
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None:
        return 0
    width = getattr(dtype, "itemsize", 4)
    return size(shape) * int(width)


def dot_flops(lhs: tuple[int, ...], rhs: tuple[int, ...], dimension_numbers: Any) -> int:
    """2 x batch x free of the left x free of the right x contracted."""
    (contract_l, contract_r), (batch_l, _) = dimension_numbers
    contracted = math.prod(lhs[d] for d in contract_l)
    batch = math.prod(lhs[d] for d in batch_l)
    right_free = size(rhs) // max(1, contracted * batch)
    return 2 * size(lhs) * right_free


def conv_flops(lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...], params: dict[str, Any]) -> int:
    """2 x outputs x (inputs of a group x window), less the places that dilation of the input fills with zeros."""
    rhs_spec = params["dimension_numbers"].rhs_spec
    per_output = size(rhs) // max(1, rhs[rhs_spec[0]])
    total = 2 * size(out) * per_output
    stuffed = math.prod(params.get("lhs_dilation") or (1,))
    return total // max(1, stuffed)


def _ragged(shapes: list[tuple[int, ...]], params: dict[str, Any]) -> int:
    lhs, rhs = shapes[0], shapes[1]
    numbers = params.get("ragged_dot_dimension_numbers")
    contract = numbers.dot_dimension_numbers[0] if numbers is not None else ((len(lhs) - 1,), (1,))
    groups = rhs[0] if len(rhs) > 2 else 1
    contracted = math.prod(lhs[d] for d in contract[0])
    if len(rhs) > 2:
        return 2 * size(lhs) * (size(rhs) // max(1, groups * contracted))
    return 2 * size(lhs) * (size(rhs) // max(1, contracted))


def matmul_flops(name: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], params: dict[str, Any]) -> int:
    """Operations that a matrix unit does; 0 for other primitives."""
    if name == "dot_general":
        return dot_flops(shapes[0], shapes[1], params["dimension_numbers"])
    if name == "conv_general_dilated":
        return conv_flops(shapes[0], shapes[1], out, params)
    if name.startswith("ragged_dot"):
        return _ragged(shapes, params)
    return 0


def other_flops(name: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], params: dict[str, Any]) -> int:
    """Operations that a vector unit does."""
    if name in _FREE or name in _SILENT or name in MATMULS or name in ("gather", "attention"):
        return 0
    if name.startswith("reduce_window"):
        return size(out) * math.prod(params.get("window_dimensions") or (1,))
    if name in _REDUCE:
        return size(shapes[0]) if shapes else 0
    if name == "sort":
        count = size(shapes[0])
        return int(count * max(1.0, math.log2(max(2, shapes[0][params.get("dimension", -1)]))))
    if name == "fft":
        return int(5 * size(out) * max(1.0, math.log2(max(2, out[-1] if out else 2))))
    if name.startswith("scatter"):
        return size(shapes[2]) if len(shapes) > 2 else 0
    return size(out)
