"""`torch-pjrt doctor`: what is installed, which chips are found, what is missing and how to get it.

Chips are asked for in child processes, one for each platform, since a plugin without its chip may end the process or
wait for ever. The report is a plain value (`examine`), shown as tables or as JSON.
"""

from __future__ import annotations

__all__ = ["examine", "report"]

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform as host
import subprocess
import sys
from typing import Any

from rich.console import Console

from torch_pjrt import config
from torch_pjrt._version import __version__

from .platforms import PLATFORMS, Platform, installed_packages, jax_plugins, signs_of

_PACKAGES = ("torch", "jax", "jaxlib", "numpy", "ml_dtypes")
_VARIABLES = ("JAX_PLATFORMS", "JAX_ENABLE_X64", "XLA_FLAGS", "PJRT_DEVICE", "TORCH_DEVICE_BACKEND_AUTOLOAD")

# Run in a child process: prints one JSON line.
_LIST_DEVICES = """
import json, sys, jax
print(json.dumps([{"id": d.id, "kind": d.device_kind} for d in jax.devices(sys.argv[1])]))
"""
_TRY_DEVICE = """
import json, os, torch
held = torch._C._get_privateuse1_backend_name()
if held == "privateuseone":
    off = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"
    why = ", since TORCH_DEVICE_BACKEND_AUTOLOAD=0" if off else ""
    raise SystemExit("importing torch registered no device" + why)
device = torch.device(held)
value = (torch.arange(4, device=device) * 2).sum().item()
module = getattr(torch, held)
print(json.dumps({"slot": held, "value": value, "chip": module.get_device_name(0) if
                  hasattr(module, "get_device_name") else ""}))
"""


@dataclasses.dataclass(slots=True)
class Finding:
    """Something that is wrong (`error`) or could be better (`advice`), and what to do."""

    level: str
    what: str
    todo: str


@dataclasses.dataclass(slots=True)
class PlatformState:
    """What is known of one platform here."""

    name: str
    chip: str
    packages: dict[str, str]
    signs: list[str]
    devices: list[dict[str, Any]]
    trouble: str


@dataclasses.dataclass(slots=True)
class Report:
    """All of it; `ok` says whether the device works."""

    ok: bool
    versions: dict[str, str]
    system: str
    device: dict[str, Any]
    other_backends: list[str]
    platforms: list[PlatformState]
    plugins: dict[str, str]
    cache: dict[str, Any]
    settings: dict[str, Any]
    environment: dict[str, str]
    findings: list[Finding]


def report(*, as_json: bool = False, timeout: float = 60.0) -> int:
    """Print the report. Gives the exit code: 1 when the device does not work."""
    console = Console(stderr=True)
    with console.status("asking each platform") if console.is_terminal else contextlib.nullcontext():
        found = examine(timeout=timeout)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        from .doctor_page import show

        show(found)
    return 0 if found.ok else 1


def examine(*, timeout: float = 60.0) -> Report:
    """Look at everything."""
    states = [examine_platform(each, timeout) for each in PLATFORMS]
    device = _child(_TRY_DEVICE, timeout=timeout)
    values, refused = setting_values()
    findings = [*refused, *find_trouble(device, states)]
    return Report(
        ok=not any(finding.level == "error" for finding in findings),
        versions=versions(),
        system=f"{host.system()} {host.release()} {host.machine()}, {os.cpu_count()} cores",
        device=device,
        other_backends=other_backends(),
        platforms=states,
        plugins=jax_plugins(),
        cache=cache_state(),
        settings=values,
        environment=config.environment(*_VARIABLES),
        findings=findings,
    )


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of what it stands on; empty where missing."""
    found = {"python": host.python_version(), "torch-pjrt": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def setting_values() -> tuple[dict[str, Any], list[Finding]]:
    """The value of every setting, and a finding for each variable that holds what it cannot."""
    values: dict[str, Any] = {}
    findings = []
    for row in config.table():
        try:
            values[row.name] = getattr(config.settings, row.name)
        except ValueError as error:
            values[row.name] = row.default
            setattr(config.settings, row.name, row.default)
            findings.append(Finding("error", *str(error).split("\n  ", 1)))
    return values, findings


def examine_platform(platform: Platform, timeout: float) -> PlatformState:
    """Its packages, the signs of its chip, and, when it has packages, its devices."""
    packages = installed_packages(platform)
    devices: list[dict[str, Any]] = []
    trouble = ""
    if packages:
        answer = _child(_LIST_DEVICES, platform.name, timeout=timeout, environment={"JAX_PLATFORMS": platform.name})
        if isinstance(answer, list):
            devices = answer
        else:
            trouble = answer["trouble"]
    return PlatformState(platform.name, platform.chip, packages, signs_of(platform), devices, trouble)


def find_trouble(device: dict[str, Any], states: list[PlatformState]) -> list[Finding]:
    """What to say about it, worst first."""
    findings = [
        Finding("error", f"{name} is not installed", f"pip install {name}")
        for name, version in versions().items()
        if not version
    ]
    ours = config.settings.device_name
    if "trouble" in device:
        findings.append(
            Finding("error", f"the {ours} device does not work: {device['trouble']}", "see the message above")
        )
    elif device["slot"] != ours:
        todo = f"uninstall one of: torch-pjrt, {', '.join(other_backends()) or 'the other backend'}"
        findings.append(Finding("error", f"PyTorch's one slot for a new device is held by {device['slot']!r}", todo))
    rows = {platform.name: platform for platform in PLATFORMS}
    for state in states:
        row = rows[state.name]
        install = row.install + (f"   ({row.note})" if row.note else "")
        if state.signs and not state.packages:
            findings.append(
                Finding("advice", f"this machine seems to have {_a(row.chip)}, without its plugin", install)
            )
        elif state.signs and state.trouble:
            findings.append(Finding("error", f"the {row.chip}'s plugin finds no device: {state.trouble}", install))
    return findings


def other_backends() -> list[str]:
    """Packages beside this one that register a device when torch is imported."""
    points = importlib.metadata.entry_points(group="torch.backends")
    return sorted({point.dist.name if point.dist else point.name for point in points} - {"torch-pjrt"})


def cache_state() -> dict[str, Any]:
    """Where compiled programs are kept, how many, how large."""
    path = config.settings.cache_path()
    if path is None:
        return {"path": None, "entries": 0, "bytes": 0, "writable": False}
    files = [each for each in path.rglob("*") if each.is_file()] if path.exists() else []
    return {
        "path": str(path),
        "entries": len(files),
        "bytes": sum(each.stat().st_size for each in files),
        "writable": os.access(_nearest_existing(path), os.W_OK),
    }


def _nearest_existing(path: pathlib.Path) -> pathlib.Path:
    return path if path.exists() or path == path.parent else _nearest_existing(path.parent)


def _child(code: str, *arguments: str, timeout: float, environment: dict[str, str] | None = None) -> Any:
    """The JSON that a child process prints last, or {"trouble": why it did not}."""
    command = [sys.executable, "-c", code, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=config.child_environment(environment)
        )
    except subprocess.TimeoutExpired:
        return {"trouble": f"no answer within {timeout:.0f} s"}
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        lines = done.stderr.strip().splitlines()
        return {"trouble": lines[-1] if lines else f"the process ended with code {done.returncode}"}


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOU' or noun.startswith('NV') else 'a'} {noun}"
