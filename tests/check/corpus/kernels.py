import torch
import triton  # expect: PJ601
import triton.language as tl  # expect: PJ601
from torch.utils.cpp_extension import CUDAExtension, load


@triton.jit  # expect: PJ604
def add(x, n: tl.constexpr):
    pass


ext = CUDAExtension("k", ["k.cu"])  # expect: PJ605
lib = load("k", sources=["k.cpp", "k_kernel.cu"])  # expect: PJ605


@torch.library.custom_op("mine::add", mutates_args=(), device_types="cuda")  # expect: PJ608
def mine(x: torch.Tensor) -> torch.Tensor:
    return x + 1
