import argparse

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width: int, device="cuda"):  # expect: PJ102
        super().__init__()
        self.line = nn.Linear(width, 2, device=device)


def make(*, device: str = "cuda"):  # expect: PJ102
    return torch.zeros(2, device=device)


parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])  # expect: PJ102
settings = {"device": "cuda", "name": "cuda"}  # expect: PJ102
