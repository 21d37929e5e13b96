"""Memory that the CPU client frees stays with the process until it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torch_pjrt.pjrt import host_memory

pytestmark = pytest.mark.skipif(host_memory._glibc() is None, reason="only glibc is told what to keep")

# Steps as a training loop has them: results of many sizes live at once, and all die. Page faults are pages asked for anew.
STEPS = """
import gc, resource, torch

def resident():
    with open("/proc/self/statm") as figures:
        return int(figures.read().split()[1]) * resource.getpagesize() >> 20

def step():
    x = torch.ones(1 << 20, device="pjrt")
    made = [x * i for i in range(24)]
    torch.accelerator.synchronize()
    return made

for _ in range(3):
    made = step()
    del made
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    made = step()
    del made
faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 5
held = resident()
torch.accelerator.empty_cache()
print(faults, held - resident())
"""


def run(**variables: str) -> tuple[float, int]:
    environment = os.environ | {"TORCH_PJRT_PLATFORM": "cpu"} | variables
    text = subprocess.run([sys.executable, "-c", STEPS], env=environment, capture_output=True, text=True, check=True)
    faults, returned = text.stdout.split()
    return float(faults), int(returned)


def test_freed_memory_is_used_again_and_given_back_when_asked() -> None:
    faults, returned = run()
    assert faults < 2_000  # of the 24,000 pages of a step
    assert returned > 64  # MiB


def test_the_setting_leaves_the_allocator_to_the_user() -> None:
    faults, returned = run(TORCH_PJRT_KEEP_MEMORY="0", MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072")
    assert faults > 10_000  # glibc does what the variables say
    assert returned < 64
