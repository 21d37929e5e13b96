"""The disk cache: a second process compiles nothing, a damaged entry is compiled anew and reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.arange(12., device="pjrt").reshape(3, 4)
    value = (x @ x.t()).relu().sum().item()
stats = torch.pjrt.stats()
print(json.dumps([value, stats["compiles"], stats["disk_hits"], [w.category.__name__ for w in caught]]))
"""


def run(cache: Path) -> tuple[float, int, int, list[str]]:
    env = dict(os.environ, TORCH_PJRT_CACHE_DIR=str(cache))
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
    value, compiles, hits, warned = json.loads(done.stdout.splitlines()[-1])
    return value, compiles, hits, warned


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    first = run(tmp_path)
    second = run(tmp_path)
    assert first[0] == second[0]
    assert first[1] > 0 and first[2] == 0
    assert second[1] == 0 and second[2] == first[1]


LAPACK = """
import torch
a = torch.tensor([[4.0, 2.0], [2.0, 5.0]]).to("pjrt")
print(torch.linalg.eigvalsh(a).sum().item(), torch.linalg.qr(a)[1].shape, torch.pjrt.stats()["compiles"])
"""


def test_programs_from_disk_that_call_lapack(tmp_path: Path) -> None:
    """JAX loads LAPACK while it traces; the second process traces nothing, and must not jump to address 0."""
    env = dict(os.environ, TORCH_PJRT_CACHE_DIR=str(tmp_path))
    runs = [subprocess.run([sys.executable, "-c", LAPACK], env=env, capture_output=True, text=True) for _ in range(2)]
    assert [r.returncode for r in runs] == [0, 0]
    assert [r.stdout.split()[0] for r in runs] == ["9.0", "9.0"]
    assert runs[1].stdout.split()[-1] == "0"


def test_damaged_entries_are_compiled_anew(tmp_path: Path) -> None:
    first = run(tmp_path)
    for entry in tmp_path.glob("*/*"):
        entry.write_bytes(entry.read_bytes()[:-7] + b"garbage")
    second = run(tmp_path)
    assert second[0] == first[0] and second[1] == first[1]
    assert "CacheEntryWarning" in second[3]
    assert run(tmp_path)[1] == 0


def test_foreign_entries_are_compiled_anew(tmp_path: Path) -> None:
    first = run(tmp_path)
    for entry in tmp_path.glob("*/*"):
        entry.write_bytes(b"\x80\x04K\x01.")  # a pickle: never loaded
    assert run(tmp_path)[:2] == first[:2]


def test_entries_hold_no_pickle(tmp_path: Path) -> None:
    run(tmp_path)
    entries = list(tmp_path.glob("*/*"))
    assert entries
    for entry in entries:
        head = json.loads(entry.read_bytes().split(b"\n", 1)[0])
        assert set(head) == {"magic", "sha256"}


def test_longest_unused_entries_go_first(tmp_path: Path) -> None:
    from torch_pjrt.pjrt.cache import prune

    (tmp_path / "ab").mkdir()
    for age in range(4):
        path = tmp_path / "ab" / f"ab{age}"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    prune(tmp_path, 250)
    assert sorted(p.name for p in tmp_path.glob("*/*")) == ["ab0", "ab1"]
    prune(tmp_path, 0)
    assert len(list(tmp_path.glob("*/*"))) == 2
