import torch
import numpy as np

device = torch.device("cpu")


class Cast(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type=device.type)  # quiet: PJ204
    def forward(ctx, x):
        return x


with torch.autocast(device.type, dtype=torch.bfloat16):  # quiet: PJ201, PJ205
    pass
one = torch.amp.GradScaler(device.type)  # quiet: PJ202, PJ203
two = torch.amp.GradScaler(device=device.type)  # quiet: PJ203
table = torch.zeros(3, dtype=torch.float64)  # on the host; quiet: PJ301
array = torch.from_numpy(np.zeros(3, np.float32))  # quiet: PJ302
waves = torch.zeros(3, dtype=torch.complex64, device=device)  # quiet: PJ303
before = torch.backends.cuda.matmul.allow_tf32  # only read; quiet: PJ304
low = torch.finfo(table.dtype).min  # quiet: PJ305
torch.manual_seed(0)  # quiet: PJ306
state = torch.get_rng_state()  # quiet: PJ307
if torch.backends.cudnn.enabled:  # quiet: PJ308
    pass
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # quiet: PJ309
    pass
