"""What is in the wheel: every module and data file of the package, its commands and hooks, and nothing else."""

from __future__ import annotations

import configparser
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel of this checkout, built by the build backend itself."""
    builders = pytest.importorskip("hatchling.builders.wheel")
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = builders.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return pathlib.Path(path)


def test_it_has_every_file_of_the_package(wheel: pathlib.Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = ROOT / "torch_pjrt"
    files = {path.relative_to(ROOT).as_posix() for path in package.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name and not name.endswith((".pyc", ".part"))}
    assert inside == files | {"torch_pjrt/check/findings.md"}
    assert any(name.endswith(".toml") for name in inside) and "torch_pjrt/py.typed" in inside


def test_it_registers_the_device_the_compiler_and_the_command(wheel: pathlib.Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (one for one in archive.namelist() if one.endswith("entry_points.txt"))
    points = configparser.ConfigParser()
    points.read_string(archive.read(name).decode())
    assert points["torch.backends"]["torch_pjrt"] == "torch_pjrt._autoload:autoload"
    assert points["torch_dynamo_backends"]["pjrt"] == "torch_pjrt.compile.backend:pjrt"
    assert points["console_scripts"]["torch-pjrt"] == "torch_pjrt.cli.main:main"


def test_it_is_for_every_platform_and_carries_its_license(wheel: pathlib.Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    archive = zipfile.ZipFile(wheel)
    assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    (name,) = (one for one in archive.namelist() if one.endswith("/METADATA"))
    text = archive.read(name).decode()
    assert "Name: torch-pjrt" in text and "Requires-Dist: torch>=" in text and "license" in text.lower()


@pytest.mark.slow
def test_it_works_where_it_is_installed(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Unpacked as an installer does it, away from the checkout."""
    target = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(target)
    (tmp_path / "train.py").write_text("import torch\nx = torch.ones(2).cuda()\n")

    def run(*words: str) -> subprocess.CompletedProcess:
        environment = {**os.environ, "PYTHONPATH": str(target)}
        return subprocess.run(
            [sys.executable, "-m", "torch_pjrt.cli.main", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )

    said = run("check", "--explain", "PJ101")
    assert said.returncode == 0 and "Not found" in said.stdout, said.stderr
    assert run("check", "train.py").returncode == 1
    planned = run("plan", "--model", "tiny", "--chips", "l4", "--json")
    assert planned.returncode == 0, planned.stderr
    ran = run("run", "train.py")
    assert ran.returncode == 0 and "done by pjrt" in ran.stderr, ran.stderr
