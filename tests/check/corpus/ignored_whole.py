# pjrt: ignore-file
import torch

a = torch.ones(2).cuda()
