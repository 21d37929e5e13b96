import torch
import torch.distributed as dist

device = torch.accelerator.current_accelerator()
dist.init_process_group(dist.get_default_backend_for_device(device))  # expect: PJ506
dist.init_process_group(device_id=device)  # expect: PJ506
dist.init_process_group(backend=None)  # expect: PJ506
