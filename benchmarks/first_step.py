"""Seconds until a model's first training step is done, in a fresh process: with an empty disk cache, then with a warm one.

python -m benchmarks.first_step gpt 12 [compiled]       prints one number (used by __main__)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time


def measure(name: str, layers: int, *words: str, runs: int = 2) -> list[float]:
    """Seconds of the first step, cold and then warm (as many runs as asked); importing, building and moving the model are
    not counted. words: "compiled" for torch.compile."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, TORCH_PJRT_CACHE_DIR=folder)
        command = [sys.executable, "-m", "benchmarks.first_step", name, str(layers), *words]
        done = [subprocess.run(command, env=env, capture_output=True, text=True, check=True) for _ in range(runs)]
    return [float(r.stdout.split()[-1]) for r in done]


def main() -> None:
    """One first step in this process."""
    import torch

    from benchmarks.models import training_step

    step = training_step(sys.argv[1], "pjrt", int(sys.argv[2]), compiled="compiled" in sys.argv)
    torch.pjrt.synchronize()
    begin = time.perf_counter()
    step()
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main()
