# runs
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"  # expect: PJ105
place = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")  # expect: PJ105
x = torch.arange(6.0, device=device).reshape(2, 3)
result = (x @ x.T).sum().item() + torch.ones(2, device=place).sum().item()
