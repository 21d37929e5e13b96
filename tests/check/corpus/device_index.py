import torch

rank = 1
one = torch.device("cuda:0")  # expect: PJ103
two = torch.zeros(2, device=f"cuda:{rank}")  # expect: PJ103
three = torch.ones(2).to("cuda:" + str(rank))  # expect: PJ103
four = torch.ones(2, device="cuda:{}".format(rank))  # expect: PJ103
