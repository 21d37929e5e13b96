# runs
import io

import torch

model = torch.nn.Linear(2, 2, bias=False)
with torch.no_grad():
    model.weight.fill_(0.5)
file = io.BytesIO()
torch.save({"model": model.state_dict()}, file)
file.seek(0)
checkpoint = torch.load(file, weights_only=True)  # expect: PJ701
model.load_state_dict(checkpoint["model"])
file.seek(0)
model.load_state_dict(torch.load(file)["model"])  # expect: PJ701
file.seek(0)
other = torch.load(file)  # expect: PJ701
file.seek(0)
good = torch.load(file, map_location="cpu")
result = model.weight.sum().item() + other["model"]["weight"].sum().item()
