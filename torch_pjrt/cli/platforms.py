"""What is known of each platform's plugin: the packages that bring it, the signs of its chip, how to install it."""

from __future__ import annotations

__all__ = ["PLATFORMS", "Platform", "installed_packages", "jax_plugins", "signs_of"]

import dataclasses
import glob
import importlib.metadata
import platform as host
import re


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """One platform. `packages` are patterns of distribution names; `signs` are files that a machine with it has."""

    name: str
    chip: str
    packages: tuple[str, ...]
    signs: tuple[str, ...]
    install: str
    note: str = ""


PLATFORMS = (
    Platform("cpu", "any CPU", ("jaxlib",), (), "pip install jaxlib"),
    Platform(
        "tpu",
        "Google TPU",
        ("libtpu",),
        ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*"),
        "pip install 'torch-pjrt[tpu]'",
    ),
    Platform(
        "cuda",
        "NVIDIA GPU",
        (r"jax-cuda\d+-pjrt", r"jax-cuda\d+-plugin"),
        ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/version"),
        "pip install 'torch-pjrt[cuda13]'",
        "cuda12 for drivers older than 580",
    ),
    Platform(
        "rocm",
        "AMD GPU",
        (r"jax-rocm\d+-pjrt", r"jax-rocm\d+-plugin"),
        ("/dev/kfd",),
        "pip install 'torch-pjrt[rocm7]'",
    ),
    Platform(
        "neuron",
        "AWS Trainium",
        ("libneuronxla",),
        ("/dev/neuron[0-9]*",),
        "pip install libneuronxla",
        "from the package index that the AWS Neuron guide names",
    ),
    Platform(
        "xpu",
        "Intel GPU",
        ("intel-extension-for-openxla",),
        (),
        "pip install 'torch-pjrt[oneapi]'",
        "needs Python 3.13 or newer",
    ),
    Platform("metal", "Apple GPU", ("jax-metal",), (), "pip install jax-metal", "last released for an older JAX"),
)


def installed_packages(platform: Platform) -> dict[str, str]:
    """Distributions of this environment that belong to the platform, with versions."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if any(re.fullmatch(pattern, name) for pattern in platform.packages):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def jax_plugins() -> dict[str, str]:
    """Entry points by which JAX finds plugins: name and module."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group="jax_plugins")}


def signs_of(platform: Platform) -> list[str]:
    """Files of this machine that say the platform's chip is there."""
    if platform.name == "metal":
        return ["macOS on Apple silicon"] if host.system() == "Darwin" and host.machine() == "arm64" else []
    return [path for pattern in platform.signs for path in sorted(glob.glob(pattern))[:1]]
