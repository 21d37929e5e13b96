import torch
from torch.utils.data import DataLoader

data = list(range(8))
a = DataLoader(data, batch_size=2, pin_memory=True)  # expect: PJ406
b = DataLoader(data, batch_size=2, pin_memory=torch.cuda.is_available())  # expect: PJ105
c = DataLoader(data, batch_size=2, pin_memory_device="cuda")  # expect: PJ102
d = torch.ones(2).to("cpu", non_blocking=True)  # expect: PJ408
e = torch.ones(2).to(a.dataset[0], non_blocking=True)
