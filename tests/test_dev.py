"""The bootstrap script says what it can do, without an environment."""

from __future__ import annotations

import pathlib
import subprocess
import sys

DEV = pathlib.Path(__file__).resolve().parents[1] / "dev"


def test_without_a_command_it_says_what_there_is() -> None:
    done = subprocess.run([sys.executable, "-S", DEV], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for command in ("run", "test", "check", "conformance", "bench", "docs"):
        assert f"./dev {command}" in done.stderr
