import apex  # expect: PJ601
import bitsandbytes as bnb  # expect: PJ601
import torch
import xformers.ops as xops  # expect: PJ601
from flash_attn import flash_attn_func  # expect: PJ601
from nvidia.dali import pipeline_def  # expect: PJ601
from transformers import AutoModel, TrainingArguments

model = AutoModel.from_pretrained("x", attn_implementation="flash_attention_2")  # expect: PJ606
small = AutoModel.from_pretrained("x", load_in_8bit=True)  # expect: PJ607
args = TrainingArguments("out", optim="adamw_bnb_8bit", tf32=True)  # expect: PJ607, PJ611
fast = torch.compile(model, backend="inductor")  # expect: PJ609
torch._inductor.config.max_autotune = True  # expect: PJ610
