"""The table of rules. An id is never given to another habit; a rule that goes leaves its id unused.

PJ0 files, PJ1 devices, PJ2 mixed precision, PJ3 numbers, PJ4 streams and memory, PJ5 several devices, PJ6 libraries and
kernels, PJ7 checkpoints, PJ8 shapes and host reads, PJ9 measured by `--run`. docs/findings/index.md is written from it.
"""

from __future__ import annotations

__all__ = ["FAMILIES", "RULES", "rule"]

from .findings import Rule, Severity

_B, _C, _S, _Y = Severity.BREAKS, Severity.CHANGES, Severity.SLOWS, Severity.STYLE

FAMILIES = {
    "PJ0": "Files",
    "PJ1": "Devices",
    "PJ2": "Mixed precision",
    "PJ3": "Numbers",
    "PJ4": "Streams, memory, profiling",
    "PJ5": "Several devices",
    "PJ6": "Libraries and kernels",
    "PJ7": "Checkpoints",
    "PJ8": "Shapes and host reads",
    "PJ9": "Measured",
}

# id, name, severity, consequence on another chip, fix, severity where only CUDA gets there (default: silently-changes)
_ROWS: tuple[tuple[str, str, Severity, str, str, Severity | None], ...] = (
    ("PJ001", "not-checked", _Y, "This file could not be parsed, so nothing is known about it.",
     "Mend its syntax, or leave it out with --exclude.", None),
    ("PJ002", "unused-ignore", _Y, "The comment hides nothing and would hide a later finding.",
     "Delete the `# pjrt: ignore` comment.", None),
    ("PJ101", "cuda-method", _B, "`.cuda()` raises where there is no CUDA.",
     "Use `.to(device)` with one `device` variable.", None),
    ("PJ102", "cuda-device", _B, "The device \"cuda\" exists on CUDA machines only; making a tensor there raises.",
     "Take the device from `torch.accelerator.current_accelerator()`, once.", None),
    ("PJ103", "cuda-index", _B, "\"cuda:N\" raises elsewhere, and an index above 0 also where a process drives one chip.",
     "Use `torch.device(device_type, index)` with the local rank, or no index at all.", None),
    ("PJ104", "bare-index", _Y, "An index alone is the current accelerator in recent torch, CUDA in older, an error on a "
     "CPU-only machine.", "Name the device: `torch.device(device_type, index)`.", None),
    ("PJ105", "cuda-gate", _C, "The test is false on every other accelerator, so the program runs on the CPU and says "
     "nothing.", "Ask `torch.accelerator.is_available()`.", _C),
    ("PJ106", "cuda-comparison", _C, "The branch for CUDA is not taken on another accelerator.",
     "Ask for what the branch needs (a dtype, a kernel), or compare with `!= \"cpu\"`.", _C),
    ("PJ107", "is-cuda", _C, "`is_cuda` is False on every other accelerator.",
     "Compare `tensor.device.type` with the type of the accelerator.", _C),
    ("PJ108", "cuda-tensor-type", _B, "The tensor types of torch.cuda cannot be made without CUDA.",
     "Use `dtype=` and `device=`.", None),
    ("PJ109", "cuda-device-call", _B, "This call of torch.cuda needs a CUDA device.",
     "Use the call of torch.accelerator (`device_count`, `current_device_index`, `set_device_index`, ...).", None),
    ("PJ110", "cuda-properties", _B, "Names, properties and compute capability are CUDA's; elsewhere they raise or choose "
     "the wrong branch.", "Ask for the feature itself: try the dtype, or `torch.accelerator.get_device_capability()`.", None),
    ("PJ111", "cuda-environment", _C, "The variable has no effect on another chip.",
     "Set the variable of the chip where the job is started, not in the program.", _Y),
    ("PJ112", "cuda-other", _B, "This part of torch.cuda has no counterpart elsewhere.",
     "Keep it behind a function of your own with a path for other devices.", None),
    ("PJ113", "vendor-backend-module", _B, "This module of torch exists for one vendor; its calls raise elsewhere.",
     "Use torch.accelerator, or ask for the device type first.", _Y),
    ("PJ114", "vendor-device", _B, "This device exists with one vendor's chips only; making a tensor there raises.",
     "Take the device from `torch.accelerator.current_accelerator()`, once.", None),
    ("PJ201", "autocast-cuda", _C, "autocast for \"cuda\" is disabled where CUDA is missing: the model runs in float32.",
     "Use `torch.autocast(device_type=device.type, dtype=torch.bfloat16)`.", _C),
    ("PJ202", "gradscaler-cuda", _C, "A GradScaler for \"cuda\" disables itself without CUDA: gradients are not scaled.",
     "Use `torch.amp.GradScaler(device.type)`, or bfloat16 without a scaler.", _C),
    ("PJ203", "gradscaler-default", _C, "A GradScaler without a device means \"cuda\" and disables itself elsewhere.",
     "Name the device: `torch.amp.GradScaler(device.type)`.", _C),
    ("PJ204", "custom-fwd-cuda", _C, "custom_fwd for \"cuda\" casts nothing under another device's autocast.",
     "Give `device_type=` the type of the device in use.", _C),
    ("PJ205", "float16-autocast", _S, "Chips without float16 units emulate it; most have bfloat16, which needs no scaler.",
     "Use `dtype=torch.bfloat16`, or choose it by what the device supports.", _S),
    ("PJ301", "float64", _S, "float64 is emulated on TPU and missing on Trainium and Apple chips.",
     "Use float32 on the device; keep float64 for the host.", _S),
    ("PJ302", "numpy-float64", _C, "NumPy makes float64, which torch keeps: slow or an error where float64 is missing.",
     "Cast at the boundary: `.astype(np.float32)` or `dtype=torch.float32`.", _C),
    ("PJ303", "complex128", _S, "complex128 is missing or emulated on most chips.",
     "Use complex64.", _S),
    ("PJ304", "tf32-flag", _C, "TF32 flags act on NVIDIA only: float32 products have another precision elsewhere.",
     "Use `torch.set_float32_matmul_precision(\"high\")`, which every device reads.", _C),
    ("PJ305", "finfo-float32-mask", _C, "The least float32 is -inf in bfloat16 or float16: a fully masked row becomes NaN.",
     "Use `torch.finfo(x.dtype).min`, or a boolean mask.", _C),
    ("PJ306", "cuda-seed", _C, "Without CUDA this seeds nothing.",
     "`torch.manual_seed(seed)` seeds every device.", _Y),
    ("PJ307", "cuda-rng-state", _B, "The random state of CUDA says nothing of another device: a resumed run differs.",
     "Save `torch.get_device_module(device).get_rng_state()`.", None),
    ("PJ308", "cudnn-flag", _Y, "cuDNN's flags act on NVIDIA only.",
     "Nothing to do; `torch.use_deterministic_algorithms(True)` is the flag for all devices.", _Y),
    ("PJ309", "sdp-backend-flag", _C, "The switches of torch.backends.cuda for attention act on CUDA only.",
     "Use `torch.nn.attention.sdpa_kernel(...)`, or leave the choice to the device.", _Y),
    ("PJ401", "cuda-synchronize", _B, "`torch.cuda.synchronize()` raises without CUDA; without a wait, times are wrong.",
     "Use `torch.accelerator.synchronize()`.", _Y),
    ("PJ402", "cuda-stream", _B, "Streams and events of torch.cuda cannot be made without CUDA.",
     "Use `torch.Stream`, `torch.Event` and `torch.accelerator.current_stream()`.", _Y),
    ("PJ403", "cuda-memory", _B, "The memory calls of torch.cuda raise, or report 0, on another device.",
     "Use the calls of the same names in torch.accelerator.", _Y),
    ("PJ404", "cuda-graph", _B, "CUDA graphs exist on CUDA only.",
     "Use `torch.compile`, which removes launch cost on every device.", None),
    ("PJ405", "nvtx", _B, "NVTX ranges raise without CUDA.",
     "Use `torch.profiler.record_function`.", _Y),
    ("PJ406", "pin-memory", _Y, "Pinned memory helps only where the accelerator has it, and nothing says when not.",
     "Use `pin_memory=torch.accelerator.is_available()`; give no `pin_memory_device`.", _Y),
    ("PJ407", "cuda-profiler", _C, "The profiler records no device time on another chip.",
     "Use `torch.profiler.supported_activities()` and sort by `device_time_total`.", _Y),
    ("PJ408", "non-blocking-to-host", _C, "A copy to the host that does not block may be read before it is complete.",
     "Leave out `non_blocking`, or call `torch.accelerator.synchronize()` before reading.", _C),
    ("PJ501", "nccl", _B, "NCCL is a library for NVIDIA devices; the process group cannot be made.",
     "Use `dist.get_default_backend_for_device(device)`, or leave `backend` out and give `device_id`.", None),
    ("PJ502", "ddp-device-ids", _B, "`device_ids` takes indices of CUDA devices; a process that drives one chip has index 0 "
     "only.", "Leave `device_ids` out: the module and its inputs are already on the device.", None),
    ("PJ503", "data-parallel", _B, "DataParallel drives several CUDA devices from one process.",
     "Use DistributedDataParallel with one process for each chip.", None),
    ("PJ504", "nccl-test", _C, "The branch for NCCL is not taken on another device.",
     "Ask `dist.get_backend_config()` or the device's default backend.", _C),
    ("PJ505", "cuda-mesh", _B, "A mesh of \"cuda\" devices cannot be made elsewhere.",
     "Give the device type of the accelerator.", None),
    ("PJ506", "no-process-group-yet", _B, "The program chooses the default backend of its device, and the pjrt device has none "
     "yet: no process group can be made over it.", "Nothing is wrong with the code; run one process, or on CUDA or the CPU, "
     "until the device has a backend.", None),
    ("PJ601", "vendor-library", _B, "This library exists for one vendor: the import fails elsewhere.",
     "Import it in try/except with a path in plain PyTorch.", _Y),
    ("PJ602", "vendor-requirement", _B, "This requirement cannot be installed without one vendor's tools.",
     "Move it to an extra, e.g. [cuda].", None),
    ("PJ603", "cuda-wheel-index", _B, "The requirement asks for torch built for CUDA.",
     "Leave the index and the `+cu` version to the person who installs.", None),
    ("PJ604", "triton-kernel", _B, "Triton kernels run where Triton has a driver: NVIDIA, AMD, Intel.",
     "Keep a path in plain PyTorch and choose by device.", None),
    ("PJ605", "cuda-extension", _B, "Kernels in CUDA C++ need nvcc and an NVIDIA device.",
     "Register the op with torch.library and give it a path in plain PyTorch.", None),
    ("PJ606", "flash-attention", _B, "This attention needs the flash-attn package, hence CUDA.",
     "Use `attn_implementation=\"sdpa\"`: scaled_dot_product_attention is fused on every device.", None),
    ("PJ607", "bitsandbytes-quantization", _B, "8-bit and 4-bit through bitsandbytes need its CUDA kernels.",
     "Use torchao, or the optimizer and dtype of plain PyTorch.", None),
    ("PJ608", "op-for-cuda-only", _B, "The op is registered for CUDA (and CPU): other devices have no kernel for it.",
     "Register it as CompositeExplicitAutograd too, written in PyTorch ops.", None),
    ("PJ609", "compile-backend", _B, "This torch.compile backend makes code for one vendor.",
     "Leave `backend` out: the device's own is used.", None),
    ("PJ610", "inductor-setting", _Y, "Inductor's settings have no effect when another compiler is used.",
     "Set it only when the backend is inductor.", _Y),
    ("PJ611", "tf32-argument", _B, "`tf32=True` is refused without an NVIDIA device.",
     "Use `torch.set_float32_matmul_precision(\"high\")`.", None),
    ("PJ701", "load-without-map-location", _B, "A checkpoint saved on CUDA asks for CUDA when it is loaded.",
     "Give `map_location=\"cpu\"` (or the device) and `weights_only=True`.", None),
    ("PJ801", "host-read-in-loop", _S, "Each step waits for the device to hand one value to the host.",
     "Keep sums on the device and read them every N steps.", _S),
    ("PJ802", "branch-on-value", _S, "The host waits for a value to choose the branch, and torch.compile breaks the graph.",
     "Use torch.where, torch.cond, or check every N steps.", _S),
    ("PJ803", "data-dependent-shape", _S, "The size of the result depends on values: a compiler of static shapes compiles "
     "again or pads.", "Use torch.where or a mask of fixed size.", _S),
    ("PJ804", "ragged-last-batch", _S, "The last batch is smaller, which is one more shape to compile.",
     "Use `drop_last=True` for training.", _S),
    ("PJ805", "padding-to-longest", _S, "Each batch has its own length, and each length is compiled.",
     "Pad to a multiple (`pad_to_multiple_of=128`) or to a maximal length.", _S),
    ("PJ901", "measured-fallback", _S, "The op ran on the CPU, with copies both ways.",
     "Use another op, or report it: `torch-pjrt` has no lowering for it yet.", None),
    ("PJ902", "measured-recompiles", _S, "Programs were compiled again at this line.",
     "Keep shapes the same from step to step; `torch.pjrt.explain_recompiles()` says what differed.", None),
    ("PJ903", "measured-host-read", _S, "The host waited for a value of the device at this line.",
     "Read it less often.", None),
    ("PJ904", "measured-dtype", _B, "The device has no such dtype.",
     "Cast before the tensor goes to the device.", None),
    ("PJ905", "measured-failure", _B, "The program ended with an error on the pjrt device.",
     "See the message.", None),
    ("PJ906", "measured-cuda-call", _Y, "The program asked CUDA for this; `torch-pjrt run` answered in its place.",
     "`torch-pjrt port` rewrites most of these.", None),
    ("PJ907", "measured-wide-dtype", _S, "The device computed in float64 or complex128, which is emulated on TPU and missing "
     "on Trainium and Apple chips.", "Cast to float32 or complex64 before the tensor goes to the device.", None),
)  # fmt: skip

RULES = {
    row[0]: Rule(
        id=row[0],
        name=row[1],
        severity=row[2],
        consequence=row[3],
        fix=row[4],
        guarded=row[5] or (Severity.CHANGES if row[2] is Severity.BREAKS else row[2]),
    )
    for row in _ROWS
}


def rule(id_: str) -> Rule:
    """The rule of an id; KeyError for one that does not exist."""
    return RULES[id_]
