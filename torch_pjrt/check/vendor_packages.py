"""Python packages that exist for one vendor's chips: by import name, by requirement name, and what to use instead.

Facts as of 2026: a package that gains a portable path leaves the table. Used by detect_libraries.py and requirements.py.
"""

from __future__ import annotations

__all__ = ["IMPORTS", "requirement_reason"]

import re

# Import name: what it needs.
IMPORTS = {
    "flash_attn": "nvcc and an NVIDIA GPU",
    "flash_attn_interface": "an NVIDIA Hopper GPU",
    "flash_attn_2_cuda": "an NVIDIA GPU",
    "flashinfer": "an NVIDIA GPU",
    "xformers": "CUDA or ROCm kernels",
    "apex": "a build with nvcc",
    "amp_C": "a build of apex with nvcc",
    "fused_layer_norm_cuda": "a build of apex with nvcc",
    "bitsandbytes": "CUDA kernels for its 8-bit and 4-bit types",
    "transformer_engine": "an NVIDIA GPU",
    "transformer_engine_torch": "an NVIDIA GPU",
    "triton": "a Triton driver (NVIDIA, AMD, Intel)",
    "tensorrt": "an NVIDIA GPU",
    "tensorrt_llm": "an NVIDIA GPU",
    "torch_tensorrt": "an NVIDIA GPU",
    "torch2trt": "an NVIDIA GPU",
    "polygraphy": "an NVIDIA GPU",
    "pycuda": "an NVIDIA GPU",
    "cupy": "an NVIDIA or AMD GPU",
    "cupyx": "an NVIDIA or AMD GPU",
    "cudf": "an NVIDIA GPU",
    "cuml": "an NVIDIA GPU",
    "cugraph": "an NVIDIA GPU",
    "rmm": "an NVIDIA GPU",
    "pynvml": "the NVIDIA driver",
    "nvidia": "NVIDIA libraries",
    "nvidia_dlprof_pytorch_nvtx": "NVIDIA libraries",
    "nvtx": "NVIDIA tools",
    "cutlass": "an NVIDIA GPU",
    "deep_gemm": "an NVIDIA Hopper GPU",
    "deep_ep": "NVIDIA GPUs with NVSHMEM",
    "flash_mla": "an NVIDIA Hopper GPU",
    "fa3_fwd": "an NVIDIA Hopper GPU",
    "auto_gptq": "CUDA kernels",
    "gptqmodel": "CUDA kernels for most formats",
    "awq": "CUDA or Triton kernels",
    "awq_ext": "CUDA kernels",
    "exllamav2": "an NVIDIA GPU",
    "exllama_kernels": "CUDA kernels",
    "mamba_ssm": "CUDA and Triton kernels",
    "causal_conv1d": "CUDA kernels",
    "causal_conv1d_cuda": "CUDA kernels",
    "selective_scan_cuda": "CUDA kernels",
    "fla": "Triton kernels",
    "liger_kernel": "Triton kernels",
    "unsloth": "Triton kernels and an NVIDIA or AMD GPU",
    "sageattention": "CUDA or Triton kernels",
    "grouped_gemm": "CUDA kernels",
    "megablocks": "CUDA and Triton kernels",
    "tinycudann": "an NVIDIA GPU",
    "nvdiffrast": "an NVIDIA GPU",
    "spconv": "CUDA kernels",
    "torchsparse": "CUDA kernels",
    "MinkowskiEngine": "CUDA kernels",
    "warp_rnnt": "CUDA kernels",
    "numba.cuda": "an NVIDIA GPU",
    "torch._inductor.runtime.triton_helpers": "Triton",
    "torch_npu": "an Ascend NPU",
    "habana_frameworks": "an Intel Gaudi",
    "intel_extension_for_pytorch": "an Intel chip",
    "torch_neuronx": "an AWS Trainium or Inferentia",
    "torch_xla": "torch's older XLA backend",
    "torch_directml": "Windows with DirectML",
}

# Requirement names that differ from the import name, as regular expressions over the normalised name.
_REQUIREMENTS = {
    r"flash-attn(-\d)?|flashattn-hopper": "nvcc and an NVIDIA GPU",
    r"flashinfer(-python|-jit-cache)?": "an NVIDIA GPU",
    r"nvidia-.+": "NVIDIA libraries",
    r"cupy(-cuda\w*|-rocm\S*)?": "an NVIDIA or AMD GPU",
    r"(cudf|cuml|cugraph|rmm|pylibraft|cuvs)(-cu\d+)?": "an NVIDIA GPU",
    r"faiss-gpu(-cu\d+)?": "an NVIDIA GPU",
    r"onnxruntime-gpu": "an NVIDIA GPU",
    r"tensorrt(-\S+)?|torch-tensorrt": "an NVIDIA GPU",
    r"transformer-engine(-\S+)?": "an NVIDIA GPU",
    r"auto-gptq|autogptq|gptqmodel|autoawq(-kernels)?": "CUDA kernels",
    r"pytorch-triton(-\S+)?": "a Triton driver",
    r"dali|nvidia-dali-\S+": "an NVIDIA GPU",
    r"mamba-ssm|causal-conv1d": "CUDA kernels",
    r"flash-linear-attention|liger-kernel(-nightly)?|unsloth(-zoo)?": "Triton kernels",
    r"tiny-cuda-nn|spconv-cu\d+": "CUDA kernels",
    r"dgl-cu\d+|torch-npu|torch-neuronx|intel-extension-for-pytorch|torch-directml": "one vendor's chip",
    r"habana-torch-plugin": "an Intel Gaudi",
}


def requirement_reason(name: str) -> str | None:
    """What a distribution needs of one vendor, or None."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    for pattern, reason in _REQUIREMENTS.items():
        if re.fullmatch(pattern, plain):
            return reason
    imports = {re.sub(r"[-_.]+", "-", one).lower(): reason for one, reason in IMPORTS.items() if one != "nvidia"}
    return imports.get(plain)
