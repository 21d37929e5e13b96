import torch

state = torch.cuda.get_rng_state_all()  # expect: PJ307/silently-changes
torch.cuda.set_rng_state_all(state)  # expect: PJ307
