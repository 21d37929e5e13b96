# runs
import torch
from torch.cuda.amp import autocast

model = torch.nn.Linear(4, 4, bias=False)
with torch.no_grad():
    model.weight.copy_(torch.eye(4))
x = torch.arange(8.0).reshape(2, 4)
with autocast(False):  # expect: PJ201
    one = model(x)
with torch.autocast("cuda", enabled=False):  # expect: PJ201
    two = model(x)
with torch.amp.autocast(device_type="cuda", enabled=False):  # expect: PJ201
    three = model(x)
result = (one + two + three).sum().item()
