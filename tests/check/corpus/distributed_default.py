import argparse

import torch
import torch.distributed as dist


def setup(backend="nccl"):  # expect: PJ501
    dist.init_process_group(backend)


parser = argparse.ArgumentParser()
parser.add_argument("--dist-backend", default="nccl")  # expect: PJ501
backend = "nccl" if torch.cuda.is_available() else "gloo"  # expect: PJ105, PJ501/silently-changes
