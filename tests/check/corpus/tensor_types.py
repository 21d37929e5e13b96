import torch

torch.set_default_tensor_type("torch.cuda.FloatTensor")  # expect: PJ108
x = torch.cuda.FloatTensor(3)  # expect: PJ108
y = torch.ones(2).type("torch.cuda.HalfTensor")  # expect: PJ108
