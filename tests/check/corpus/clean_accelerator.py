# runs
import torch

device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
model = torch.nn.Linear(3, 3, bias=False).to(device)
with torch.no_grad():
    model.weight.fill_(0.25)
scaler = torch.amp.GradScaler(device, enabled=False)
with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=False):
    loss = model(torch.ones(2, 3, device=device)).sum()
loss.backward()
if torch.accelerator.is_available():
    torch.accelerator.synchronize()
result = loss.item()
