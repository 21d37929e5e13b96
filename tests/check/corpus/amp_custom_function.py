# runs
import torch


class Double(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd  # expect: PJ204
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.cuda.amp.custom_bwd  # expect: PJ204
    def backward(ctx, grad):
        return grad * 2


class Triple(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)  # expect: PJ204
    def forward(ctx, x):
        return x * 3

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # expect: PJ204
    def backward(ctx, grad):
        return grad * 3


class Four(torch.autograd.Function):
    forward = staticmethod(torch.cuda.amp.custom_fwd(lambda ctx, x: x * 4))  # expect: PJ204
    backward = staticmethod(torch.cuda.amp.custom_bwd(lambda ctx, grad: grad * 4))  # expect: PJ204


x = torch.ones(3, requires_grad=True)
(Double.apply(x) + Triple.apply(x) + Four.apply(x)).sum().backward()
result = x.grad.sum().item()
