# runs
import torch
from torch.amp import GradScaler

a = torch.cuda.amp.GradScaler(2.0, enabled=False)  # expect: PJ202
b = GradScaler("cuda", enabled=False)  # expect: PJ202
c = GradScaler()  # expect: PJ203
d = GradScaler(enabled=False)  # expect: PJ203
result = float(a.is_enabled()) + float(d.is_enabled())
