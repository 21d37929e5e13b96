import torch

a = torch.ones(2).cuda()  # pjrt: ignore[PJ101]
b = torch.ones(2).cuda()  # pjrt: ignore
# pjrt: ignore[PJ102]
c = torch.ones(2, device="cuda")
d = torch.ones(2, device="cpu")  # pjrt: ignore[PJ102]  expect: PJ002
e = torch.ones(
    2,
    device="cuda",  # pjrt: ignore[PJ102]
)
