import torch

try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None

try:
    import triton
except ImportError:
    triton = None


def is_bitsandbytes_available():
    return False


if is_bitsandbytes_available():
    import bitsandbytes


def quantize():
    if not is_bitsandbytes_available():
        raise ImportError("quantize needs bitsandbytes")
    import bitsandbytes as bnb

    return bnb

F = torch.nn.functional.scaled_dot_product_attention
