"""Operators that the device refuses although torch's CPU has them, with the reason and what to do instead.

Not for operators that could be written: these keep state in C++ objects of the host, or are packings for its instructions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an operator is refused, and what to do instead."""

    why: str
    instead: str


_QUANTIZED = Refusal(
    "quantized tensors (torch.quint8 and its kin) keep their scale in a C++ object of the host, which this device cannot hold",
    "Keep int8 values and their scales as plain tensors (torch._int_mm multiplies int8 matrices, as torchao does), use "
    "torch.fake_quantize_per_tensor_affine, or move the tensor to the CPU first: x.cpu().",
)
_PACKED = Refusal(
    "it packs weights for instructions of the host's CPU",
    "Keep int8 weights with their scales as plain tensors (torch._weight_int8pack_mm runs on the device).",
)
_MKLDNN = Refusal("it makes or takes tensors of the CPU's oneDNN library", "Leave the tensor as it is.")
_NESTED = Refusal(
    "nested tensors in the strided layout exist for the CPU and CUDA only",
    "Use torch.nested.nested_tensor(..., layout=torch.jagged), which runs on the device, or pad to one length.",
)
_FILE = Refusal(
    "a tensor on the device cannot share memory with a file",
    "Map the file on the CPU, then move it: torch.from_file(...).to(device).",
)

UNSUPPORTED: dict[str, Refusal] = {
    **dict.fromkeys(
        """quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel _empty_affine_quantized
        _empty_per_channel_affine_quantized _make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor
        quantized_lstm quantized_gru""".split(),
        _QUANTIZED,
    ),
    **dict.fromkeys(
        """_convert_weight_to_int4pack_for_cpu _weight_int4pack_mm_for_cpu _dyn_quant_matmul_4bit
        _dyn_quant_pack_4bit_weight""".split(),
        _PACKED,
    ),
    **dict.fromkeys("to_mkldnn mkldnn_rnn_layer mkldnn_rnn_layer_backward".split(), _MKLDNN),
    **dict.fromkeys(
        """_nested_from_padded _nested_view_from_buffer
        _nested_compute_contiguous_strides_offsets""".split(),
        _NESTED,
    ),
    "from_file": _FILE,
}


def refusal_of(name: str) -> Refusal | None:
    """The refusal of an overload ("aten::quantize_per_tensor.default"), or None."""
    return UNSUPPORTED.get(name.removeprefix("aten::").partition(".")[0])
