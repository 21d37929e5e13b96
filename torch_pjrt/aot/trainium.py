"""What AWS documents that Trainium's compiler refuses, looked for in a program's StableHLO.

The compiler itself is on no public index, so a program without findings is "lint-clean": it is not known to compile. Rule ids
are the compiler's own error codes where the Neuron documentation has one, else KNOWN-... for its list of known issues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# Custom calls that neuronx-cc documents.
_KNOWN_CALLS = frozenset(
    """AwsNeuronErf AwsNeuronGelu AwsNeuronGeluApprxTanh AwsNeuronGeluBackward AwsNeuronSilu AwsNeuronSiluBackward
    AwsNeuronRmsNorm AwsNeuronSoftmax AwsNeuronSoftmaxBackward AwsNeuronCollectiveMatmul AwsNeuronIntMatmult AwsNeuronArgMax
    AwsNeuronArgMin AwsNeuronTopK AwsNeuronDropoutMaskV1 AwsNeuronCustomNativeKernel AwsNeuronCustomOp AwsNeuronDevicePrint
    ResizeNearest ResizeNearestGrad ResizeBilinear ResizeBilinearGrad Sharding SPMDFullToShardShape SPMDShardToFullShape
    """.split()
)
_UNSUPPORTED = ("triangular_solve", "cholesky", "fft", "infeed", "outfeed", "send", "recv")
_SCOPE = re.compile(r"[\w.]+@[^/\"()]+")


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that the compiler is documented to refuse."""

    rule: str
    op: str
    text: str
    scope: str | None = None
    where: str | None = None


def _element(kind: Any) -> str:
    return str(getattr(kind, "element_type", kind))


def _operand_types(op: Any) -> list[str]:
    return [_element(o.type) for o in op.operands]


def _result_types(op: Any) -> list[str]:
    return [_element(r.type) for r in op.results]


def _is_int(dtype: str) -> bool:
    return bool(re.fullmatch(r"u?i\d+|ui\d+", dtype))


def _has_work(region: Any) -> bool:
    """Whether a combiner does more than replace the old value."""
    return len(list(region.blocks[0].operations)) > 1


def _ints(op: Any, name: str) -> list[int]:
    return [int(v) for v in op.attributes[name]] if name in op.attributes else []


def _any_type(pattern: str) -> Callable[[Any], bool]:
    match = re.compile(pattern).fullmatch
    return lambda op: any(match(t) for t in (*_operand_types(op), *_result_types(op)))


def _moved(op: Any, *names: str) -> bool:
    return any(v != 1 for name in names for v in _ints(op, name))


def _while_is_dynamic(op: Any) -> bool:
    """A loop whose test is not one comparison with a constant."""
    inner = [o.operation.name for o in op.regions[0].blocks[0].operations]
    return inner.count("stablehlo.compare") != 1 or any(
        name not in ("stablehlo.compare", "stablehlo.constant", "stablehlo.return") for name in inner
    )


def _odd_comparator(op: Any) -> bool:
    found = []
    for inner in op.regions[0].blocks[0].operations:
        if inner.operation.name == "stablehlo.compare":
            found.append(str(inner.operation.attributes["comparison_direction"]))
    return not found or not any(d in found[-1] for d in ("LE", "GE", "LT", "GT"))


def _rng_algorithm(op: Any) -> bool:
    return "DEFAULT" not in str(op.attributes["rng_algorithm"])


def _unknown_call(op: Any) -> bool:
    return str(op.attributes["call_target_name"]).strip('"') not in _KNOWN_CALLS


def _always(op: Any) -> bool:
    return True


Test = Callable[[Any], bool]
# op -> (rule, what it says, test). "*" looks at every op.
RULES: dict[str, tuple[tuple[str, str, Test], ...]] = {
    "*": (
        ("EVRF004", "complex numbers", _any_type(r"complex<.*>")),
        ("ESPP004", "64-bit floating point", _any_type("f64")),
        ("EVRF005", "fp8 of the fnuz kind", _any_type(r"f8.*FNUZ")),
        ("EVRF051", "e4m3fn on Trn1 and Trn2", _any_type("f8E4M3FN")),
        (
            "EMOD025",
            "a size that is not known when compiling",
            lambda op: any("?" in str(r.type) for r in op.results),
        ),
    ),
    **dict.fromkeys(_UNSUPPORTED, (("EVRF001", "an unsupported operation", _always),)),
    "case": (("KNOWN-cond", "a branch decided on the device", _always),),
    "if": (("KNOWN-cond", "a branch decided on the device", _always),),
    "while": (("KNOWN-while", "a loop whose count is not fixed when compiling", _while_is_dynamic),),
    "reduce_precision": (("KNOWN-reduce-precision", "an unsupported operation", _always),),
    "custom_call": (("EHCA005", "a custom call that the compiler does not know", _unknown_call),),
    "rng_bit_generator": (("EVRF006", "a random algorithm other than the default one", _rng_algorithm),),
    "convolution": (
        (
            "EVRF010",
            "both input and kernel dilated",
            lambda op: _moved(op, "lhs_dilation") and _moved(op, "rhs_dilation"),
        ),
        (
            "EVRF011",
            "a stride with a dilated input",
            lambda op: _moved(op, "lhs_dilation") and _moved(op, "window_strides"),
        ),
    ),
    "top_k": (("EVRF013", "top-k of integers", lambda op: _is_int(_operand_types(op)[0])),),
    "scatter": (
        (
            "EVRF016",
            "a scatter that reduces integers or booleans",
            lambda op: _is_int(_operand_types(op)[0]) and _has_work(op.regions[0]),
        ),
        (
            "EVRF060",
            "a scatter into integers",
            lambda op: _is_int(_operand_types(op)[0]) and not _has_work(op.regions[0]),
        ),
    ),
    "reduce": (("KNOWN-variadic-reduce", "a reduction of several arrays at once", lambda op: len(op.results) > 1),),
    "reduce_window": (
        ("EVRF017", "a window over a dilated input", lambda op: _moved(op, "base_dilations")),
        ("EVRF018", "a dilated window", lambda op: _moved(op, "window_dilations")),
        ("EVRF019", "a window over several arrays at once", lambda op: len(op.results) > 1),
    ),
    "shift_right_arithmetic": (
        (
            "EVRF022",
            "an arithmetic shift of other than 32 bits",
            lambda op: _operand_types(op)[0] not in ("i32", "si32"),
        ),
    ),
    "sort": (
        ("EVRF029", "a sort on Trn2", _always),
        ("KNOWN-sort", "a sort by another test than <=, >=, < or >", _odd_comparator),
    ),
    "dot_general": (("EVRF035", "a product of integers", lambda op: _is_int(_operand_types(op)[0])),),
    "all_reduce": (("EVRF061", "an all-reduce of integers", lambda op: _is_int(_operand_types(op)[0])),),
    "reduce_scatter": (("EVRF063", "a reduce-scatter of integers", lambda op: _is_int(_operand_types(op)[0])),),
    "power": (("EVRF062", "a power of 64-bit integers", lambda op: _operand_types(op)[0] in ("i64", "ui64")),),
}


def lint(module: Any) -> list[Finding]:
    """The findings in an MLIR module of StableHLO, each rule once per place."""
    seen: dict[tuple[str, str, str | None], Finding] = {}
    called_at = _called_at(module)
    for op, function in _walk(module.operation):
        dialect, _, name = op.name.partition(".")
        if dialect not in ("stablehlo", "chlo"):
            continue
        for rule, text, test in (*RULES["*"], *RULES.get(name, ())):
            if test(op):
                scope = _scope(op) or called_at.get(function)
                seen.setdefault((rule, name, scope), Finding(rule, name, text, scope))
    return list(seen.values())


def _scope(op: Any) -> str | None:
    """The step that an operation belongs to, from its location."""
    match = _SCOPE.search(str(op.location))
    return match.group(0) if match else None


def _called_at(module: Any) -> dict[str, str | None]:
    """For each function inside the module, the step that first calls it, directly or through another function."""
    calls = [(op, function) for op, function in _walk(module.operation) if op.name == "func.call"]
    known: dict[str, str | None] = {}
    for _ in range(8):  # as deep as functions are nested
        for op, function in calls:
            callee = str(op.attributes["callee"]).lstrip("@")
            known[callee] = known.get(callee) or _scope(op) or known.get(function)
    return known


def _walk(op: Any) -> Iterator[tuple[Any, str]]:
    """All operations in one, each with the name of the function it is in; but not the bodies of reductions, sorts and
    scatters (one element's arithmetic)."""
    stack = [(op, "")]
    while stack:
        at, function = stack.pop()
        yield at, function
        if at.name in ("stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.sort", "stablehlo.scatter"):
            continue
        if at.name == "func.func":
            function = str(at.attributes["sym_name"]).strip('"')
        for region in at.regions:
            for block in region.blocks:
                stack.extend((inner.operation, function) for inner in block.operations)
