"""Compiling for chips that are not here. `torch_pjrt.aot.compile(model, args, target="tpu-v6e", mode="train")`."""

from torch_pjrt.aot.build import compile, compile_all
from torch_pjrt.aot.report import Report
from torch_pjrt.pjrt.targets import targets

__all__ = ["Report", "compile", "compile_all", "targets"]
