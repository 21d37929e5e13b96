"""The names of torch.cuda and its relatives, each with the rule that it falls under. The longest prefix wins.

`cuda_rule` is what detect_device.py asks. What torch.accelerator offers instead is in torch_pjrt/port/replacements.py.
"""

from __future__ import annotations

__all__ = ["cuda_rule", "quiet_severity"]

from .findings import Severity

_GROUPS = {
    "PJ109": "torch.cuda: device_count current_device set_device device device_of can_device_access_peer init "
    "is_initialized _lazy_init current_blas_handle default_generators ipc_collect set_per_process_memory_fraction",
    "PJ110": "torch.cuda: get_device_name get_device_properties get_device_capability get_arch_list get_gencode_flags "
    "is_bf16_supported is_tf32_supported utilization temperature power_draw clock_rate memory_usage list_gpu_processes "
    "device_memory_used",
    "PJ306": "torch.cuda: manual_seed manual_seed_all seed seed_all initial_seed",
    "PJ307": "torch.cuda: get_rng_state get_rng_state_all set_rng_state set_rng_state_all",
    "PJ401": "torch.cuda: synchronize",
    "PJ402": "torch.cuda: Stream Event ExternalStream StreamContext stream set_stream current_stream default_stream",
    "PJ403": "torch.cuda: empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved "
    "memory_cached max_memory_cached reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached "
    "reset_accumulated_memory_stats memory_stats memory_summary memory_snapshot mem_get_info caching_allocator_alloc "
    "caching_allocator_delete memory _record_memory_history _dump_snapshot",
    "PJ404": "torch.cuda: CUDAGraph graph make_graphed_callables graph_pool_handle is_current_stream_capturing graphs",
    "PJ405": "torch.cuda: nvtx profiler cudart",
    "PJ501": "torch.cuda: nccl comm",
    "PJ108": "torch.cuda: FloatTensor DoubleTensor HalfTensor BFloat16Tensor IntTensor LongTensor ShortTensor ByteTensor "
    "CharTensor BoolTensor",
    "PJ112": "torch.cuda: jiterator gds tunable",
    "PJ204": "torch.cuda.amp: custom_fwd custom_bwd",
    "PJ201": "torch.cuda.amp: autocast",
    "PJ202": "torch.cuda.amp: GradScaler",
    "PJ304": "torch.backends.cuda.matmul: allow_tf32 fp32_precision",
    "PJ309": "torch.backends.cuda: enable_flash_sdp enable_mem_efficient_sdp enable_math_sdp enable_cudnn_sdp sdp_kernel "
    "flash_sdp_enabled mem_efficient_sdp_enabled math_sdp_enabled can_use_flash_attention can_use_efficient_attention",
}
_RULES = {
    f"{group.split(': ')[0]}.{name}": rule for rule, group in _GROUPS.items() for name in group.split(": ")[1].split()
}
_RULES |= {
    "torch.backends.cudnn.allow_tf32": "PJ304",
    "torch.backends.cudnn.conv.fp32_precision": "PJ304",
    "torch.backends.cudnn": "PJ308",
    "torch.backends.cuda.matmul": "PJ308",
    "torch.backends.cuda": "PJ308",
}
# Seen by detectors of their own, or harmless to name.
_OTHERWISE = frozenset(
    {"torch.cuda.is_available", "torch.cuda.is_built", "torch.cuda.OutOfMemoryError", "torch.cuda.amp"}
)
# These raise nothing without CUDA: they do nothing, or say 0, False or an empty list.
_NOTHING = {f"torch.cuda.{name}" for name in ("empty_cache", "ipc_collect")}
_ZERO = {
    f"torch.cuda.{name}"
    for name in "device_count memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats "
    "is_bf16_supported is_initialized get_rng_state_all get_arch_list".split()
}


def cuda_rule(name: str) -> str | None:
    """The rule of a dotted name, or None when it is not CUDA's, or another detector's."""
    if not name.startswith(("torch.cuda.", "torch.backends.cuda.", "torch.backends.cudnn.")):
        return None
    words = name.split(".")
    for length in range(len(words), 2, -1):
        prefix = ".".join(words[:length])
        if prefix in _OTHERWISE:
            return None
        if prefix in _RULES:
            return _RULES[prefix]
    if name.startswith("torch.backends."):
        return None
    return "PJ112"


def quiet_severity(name: str) -> Severity | None:
    """The severity of a call that raises nothing without CUDA, or None for one that raises."""
    if name in _NOTHING:
        return Severity.STYLE
    return Severity.CHANGES if name in _ZERO else None
