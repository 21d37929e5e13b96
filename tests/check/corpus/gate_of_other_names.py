import torch as t
from torch import cuda
from torch.cuda import is_available as there

a = "cuda" if cuda.is_available() else "cpu"  # expect: PJ105
b = "cuda" if t.cuda.is_available() else "cpu"  # expect: PJ105
c = "cuda" if there() else "cpu"  # expect: PJ105
cuda.synchronize()  # expect: PJ401
t.cuda.empty_cache()  # expect: PJ403/style
