import torch
from transformers import AutoModelForCausalLM

x = torch.ones(2).to(0)  # expect: PJ104
y = torch.ones(2, device=0)  # expect: PJ104
z = torch.device(0)  # expect: PJ104
model = AutoModelForCausalLM.from_pretrained("gpt2", device_map={"": 0})  # expect: PJ104
