# runs
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args([])
use_cuda = not args.no_cuda and torch.cuda.is_available()  # expect: PJ105
device = torch.device("cuda" if use_cuda else "cpu")
torch.manual_seed(args.seed if hasattr(args, "seed") else 1)
options = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
result = torch.full((3,), 2.0, device=device).prod().item()
