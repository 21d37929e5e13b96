import torch


def is_cuda_usable(extension):
    return extension is not None and torch.cuda.is_available()  # quiet: PJ105


def requirements(device):
    return "onnxruntime-gpu" if device.type == "cuda" else "onnxruntime"  # quiet: PJ106


def check_nvlink_connectivity():
    pass


def make_cudnn_deterministic():
    pass


if torch.cuda.is_available():  # quiet: PJ105
    make_cudnn_deterministic()


class XLAStrategy:
    def root_device(self):
        import torch_xla  # quiet: PJ601

        return torch_xla.device()


def has_bnb_layers(model):
    import bitsandbytes as bnb  # quiet: PJ601

    return any(isinstance(one, bnb.nn.Linear4bit) for one in model.modules())


if torch.cuda.is_available() and torch.distributed.is_initialized():  # quiet: PJ105
    check_nvlink_connectivity()

HOOKS = {torch.cuda.amp.GradScaler: None}  # quiet: PJ202
HOOKS[torch.cuda.amp.GradScaler] = print
