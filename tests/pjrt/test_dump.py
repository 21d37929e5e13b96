"""The setting `dump`: texts of every program, with the user's lines."""

from __future__ import annotations

import pathlib

import torch

from torch_pjrt.config import settings


def test_texts_and_lines(tmp_path: pathlib.Path) -> None:
    with settings.override(dump=str(tmp_path), cache_dir="off"):
        x = torch.ones(3, 41, device="pjrt")
        (x.sin() * 41.5).cpu()
    texts = {
        kind: "".join(p.read_text() for p in tmp_path.glob(f"*.{kind}"))
        for kind in ("stablehlo.mlir", "hlo.txt", "lines.txt")
    }
    assert "sin@test_dump.py:" in texts["stablehlo.mlir"]
    assert "HloModule" in texts["hlo.txt"]
    assert "test_dump.py" in texts["lines.txt"] and "in test_texts_and_lines" in texts["lines.txt"]
