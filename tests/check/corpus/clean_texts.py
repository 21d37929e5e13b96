"""Talks of device="cuda" and .cuda() in words only."""
import logging

import torch

log = logging.getLogger("cuda")
CHOICES = ["cpu", "cuda", "mps"]
NAMES = {"cuda": "NVIDIA", "cpu": "host"}
log.info("use cuda:0 for %s", "cuda")
print("cuda")
assert "cuda" in CHOICES
message = f"cuda is not needed, torch {torch.__version__}"
