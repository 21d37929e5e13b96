"""Programs tried in a process of their own, since a compiler may end the process that calls it instead of refusing.

Owns the child and what is said to it: StableHLO in files, for a target by name. Costs a start of Python and a second compile,
so that it is done where a compiler is known for such ends (`dreaded`) or when asked for. Called by aot/build.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch_pjrt.config import child_environment
from torch_pjrt.pjrt import jax_compat, targets

# Dtypes over which a platform's compiler may end the process. libtpu rewrites these into pairs of narrower ones, and where
# it has no rule (triangular solves, Cholesky factors, some products of complex128) a check of its own fails.
_DREADED = {"tpu": frozenset({"complex128"})}
_LAST_WORDS = re.compile(r"^F\d{4} [\d:.]+\s+\d+ (.*)$", re.MULTILINE)  # how Google's logging writes a failed check


def dreaded(platform: str, dtypes: Iterable[Any]) -> bool:
    """Whether a platform's compiler may end the process over values of one of these dtypes."""
    return not _DREADED.get(platform, frozenset()).isdisjoint(map(str, dtypes))


def first_fatal(
    target: str, modules: Iterable[bytes], *, count: int = 1, options: dict[str, Any] | None = None
) -> tuple[int, str] | None:
    """The first of these programs over which the target's compiler ends its process, and its last words. None where it
    ends over none, whether it takes them or refuses them."""
    with tempfile.TemporaryDirectory(prefix="torch_pjrt_trial_") as folder:
        for number, module in enumerate(modules):
            Path(folder, f"{number}.mlir").write_bytes(module)
        given = [f"{name}={value}" for name, value in (options or {}).items()]
        command = [sys.executable, "-m", __name__, target, str(count), folder, *given]
        environment = child_environment({"JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"})
        child = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    begun = child.stdout.split()
    if child.returncode >= 0 or not begun:
        return None
    words = _LAST_WORDS.findall(child.stderr)
    return int(begun[-1]), words[-1] if words else f"signal {-child.returncode}"


def main(arguments: Sequence[str]) -> int:
    """The child: compile each program of a folder, and say which is begun. What is refused is not its business."""
    target, count, folder, *given = arguments
    devices = targets.devices_for(target, int(count))
    options = {name: float(value) for name, _, value in (each.partition("=") for each in given)}
    for path in sorted(Path(folder).iterdir(), key=lambda p: int(p.stem)):
        os.write(1, f"{path.stem}\n".encode())
        try:
            jax_compat.compile_absent(path.read_bytes(), devices, options)
        except Exception:  # noqa: BLE001 - compilers raise their own types, and the caller will meet it
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
