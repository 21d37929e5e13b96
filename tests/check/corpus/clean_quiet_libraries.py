import torch
from numba import jit
from torch.utils.cpp_extension import CppExtension

from .config import TrainingArguments, from_pretrained

try:
    import xformers  # quiet: PJ601
except ImportError:
    xformers = None


@jit  # quiet: PJ604
def add(x, y):
    return x + y


@torch.library.custom_op("mine::add", mutates_args=())  # quiet: PJ608
def mine(x: torch.Tensor) -> torch.Tensor:
    return x + 1


extension = CppExtension("k", ["k.cpp"])  # quiet: PJ605
model = from_pretrained("x", attn_implementation="sdpa", load_in_8bit=False)  # quiet: PJ606, PJ607
arguments = TrainingArguments("out", optim="adamw_torch", tf32=False)  # quiet: PJ607, PJ611
fast = torch.compile(model, backend="eager")  # quiet: PJ609
torch._dynamo.config.cache_size_limit = 32  # quiet: PJ610
weights = torch.load("model.pt", map_location="cpu", weights_only=True)  # quiet: PJ701
