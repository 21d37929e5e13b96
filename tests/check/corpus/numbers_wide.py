import numpy as np
import torch

device = torch.get_default_device()
a = torch.zeros(3, dtype=torch.float64, device=device)  # expect: PJ301
a = torch.zeros(3, dtype=torch.float64)
b = torch.zeros(3).double()  # expect: PJ301
c = torch.zeros(3).to(torch.complex128)  # expect: PJ303
torch.set_default_dtype(torch.float64)  # expect: PJ301
d = torch.from_numpy(np.random.rand(3))  # expect: PJ302
array = np.linspace(0, 1, 5)
e = torch.tensor(array)  # expect: PJ302
f = torch.from_numpy(np.zeros(3, np.float32))
g = torch.tensor(array, dtype=torch.float32)
h = torch.from_numpy(np.ones(3)).float()
on_host = torch.zeros(3).cpu().double()
wide = {"float64": torch.float64}[str("float64")]
