"""Seconds until a model's first training step is done, in a fresh process: with an empty disk cache, then with a warm one.

python -m benchmarks.first_step gpt 12       prints one number (used by __main__)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time


def measure(name: str, layers: int) -> tuple[float, float]:
    """(cold, warm) seconds of the first step; importing, building and moving the model are not counted."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, TORCH_PJRT_CACHE_DIR=folder)
        command = [sys.executable, "-m", "benchmarks.first_step", name, str(layers)]
        runs = [subprocess.run(command, env=env, capture_output=True, text=True, check=True) for _ in range(2)]
    cold, warm = (float(r.stdout.split()[-1]) for r in runs)
    return cold, warm


def main() -> None:
    """One first step in this process."""
    import torch

    from benchmarks.models import training_step

    step = training_step(sys.argv[1], "pjrt", int(sys.argv[2]))
    torch.pjrt.synchronize()
    begin = time.perf_counter()
    step()
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main()
