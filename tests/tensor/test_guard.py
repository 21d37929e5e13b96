"""An error raised inside backward is an exception of Python, whoever raises it; it never ends the process."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: what this is about used to abort it.
SCRIPT = """
import torch
from torch.utils.checkpoint import checkpoint

layer, x = torch.nn.Linear(4, 4).to("pjrt"), torch.ones(2, 4, device="pjrt")
seen = []

def fails(*_):
    raise KeyError("mine")

def fails_when_recomputed(value):
    seen.append(1)
    return layer(value) if len(seen) % 2 else fails()

def hooked():
    value = torch.relu(layer(x))
    value.register_hook(fails)
    return value

def unpacked():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, fails):
        return torch.relu(layer(x))

for make in (hooked, unpacked, lambda: checkpoint(fails_when_recomputed, x, use_reentrant=False)):
    for threads in (True, False):
        with torch.autograd.set_multithreading_enabled(threads):
            try:
                make().sum().backward()
            except KeyError as error:
                print(error)
layer(x).sum().backward()
print(layer.weight.grad.sum().item())
"""


def test_errors_of_hooks_and_checkpoints_are_raised() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["'mine'"] * 6 + ["32.0"]
