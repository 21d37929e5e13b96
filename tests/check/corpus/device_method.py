import torch
from torch import nn

model = nn.Linear(4, 2).cuda()  # expect: PJ101
x = torch.ones(3, 4).cuda(non_blocking=True)  # expect: PJ101
y = model(x).cuda(0)  # expect: PJ101
result = y.detach().shape[1]
