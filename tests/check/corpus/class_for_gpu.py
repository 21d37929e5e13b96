import torch


class CUDAAccelerator:
    def wait(self):
        torch.cuda.synchronize()  # expect: PJ401/style

    def name(self, index):
        return torch.cuda.get_device_name(index)  # expect: PJ110/silently-changes


states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []  # expect: PJ307/silently-changes
