# runs
import torch

torch.manual_seed(0)
device = "cuda"  # expect: PJ102
weight = torch.linspace(-1, 1, 12, device="cuda").reshape(3, 4)  # expect: PJ102
x = torch.ones(2, 3).to("cuda")  # expect: PJ102
torch.set_default_device(torch.device("cuda"))  # expect: PJ102
bias = torch.zeros(4)
torch.set_default_device(None)
result = (x @ weight + bias).sum().item()
