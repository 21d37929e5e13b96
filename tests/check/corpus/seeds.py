# runs
import random

import torch


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)  # expect: PJ306
    # all of them
    torch.cuda.manual_seed_all(seed)  # expect: PJ306
    torch.cuda.manual_seed_all(seed + 1)  # expect: PJ306


torch.manual_seed(0)
result = torch.rand(2).sum().item()
state = torch.random.get_rng_state()
