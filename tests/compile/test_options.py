"""mode= and options= of torch.compile: each does what the page says, an unknown one is refused with the nearest name."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
import torch

from torch_pjrt.compile.options import MODES, OPTIONS, parse
from torch_pjrt.errors import BadSettingError, IgnoredOptionWarning
from torch_pjrt.pjrt import compiler

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "torch_compile.md"


def deep(x: torch.Tensor) -> torch.Tensor:
    """Forty equal layers: enough to be cut."""
    for _ in range(40):
        x = ((x @ x).sigmoid() - x).cos()
    return x


def launches(compiled: Callable[[torch.Tensor], torch.Tensor]) -> int:
    """Programs that a call runs."""
    x = torch.ones(4, 4, device="pjrt")
    torch.pjrt.synchronize()
    torch.pjrt.reset_stats()
    compiled(x)
    return int(torch.pjrt.stats()["programs_launched"])


@pytest.mark.parametrize(
    ("mode", "options", "wanted"),
    [
        ("wrong", None, "default"),
        ("max-autotun", None, "'max-autotune'"),
        (None, {"share_layer": True}, "'share_layers'"),
        (None, {"share_layers": 1}, "give a bool"),
        (None, {"compiled_sizes": 0}, "positive"),
        (None, {"matmul_precision": "low"}, "highest, high, medium"),
        (None, {"xla_options": {1: 2}}, "names of XLA's options"),
    ],
)
def test_what_is_refused(mode: str | None, options: dict[str, object] | None, wanted: str) -> None:
    with pytest.raises(BadSettingError, match=wanted):
        parse(mode, options)


def test_the_page_lists_all() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, says in (*MODES.items(), *((n, o.help) for n, o in OPTIONS.items())):
        assert f"| `{name}` | {says} |" in text


@pytest.mark.parametrize("mode", list(MODES))
def test_modes_give_the_same_values(mode: str) -> None:
    function = torch.compile(lambda x: x.relu() * 2, backend="pjrt", mode=mode)
    for _ in range(8):
        assert function(torch.tensor([-1.0, 2.0], device="pjrt")).tolist() == [0, 4]


def test_reduce_overhead_is_one_executable() -> None:
    assert launches(torch.compile(deep)) > 1
    torch._dynamo.reset()
    assert launches(torch.compile(deep, mode="reduce-overhead")) == 1
    torch._dynamo.reset()
    assert launches(torch.compile(deep, backend="pjrt", options={"share_layers": False})) == 1


def test_max_autotune_tries_both_and_settles() -> None:
    compiled = torch.compile(deep, backend="pjrt", mode="max-autotune")
    counts = [launches(compiled) for _ in range(8)]
    assert counts[0] == counts[1] == counts[2] > 1
    assert counts[3] == counts[4] == counts[5] == 1
    assert counts[6] == counts[7]


def test_recompute_decides_what_forward_saves() -> None:
    def saved(recompute: bool) -> int:
        torch._dynamo.reset()
        x = torch.ones(64, device="pjrt", requires_grad=True)
        function = torch.compile(lambda x: x.sin().cos().sin().exp(), backend="pjrt", options={"recompute": recompute})
        kept: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            function(x).sum().backward()
        return len(kept)

    assert saved(True) < saved(False)


def test_xla_options_reach_the_compiler() -> None:
    x = torch.ones(4, device="pjrt")
    fine = torch.compile(
        lambda x: x * 3, backend="pjrt", options={"xla_options": {"xla_backend_optimization_level": 0}}
    )
    assert fine(x).tolist() == [3] * 4
    wrong = torch.compile(lambda x: x * 3, backend="pjrt", options={"xla_options": {"xla_no_such_option": 1}})
    with pytest.raises(Exception, match="xla_no_such_option"):
        wrong(x)


def test_precision_of_one_function() -> None:
    x = torch.ones(4, 4, device="pjrt")
    kept = [torch.compile(lambda x: x @ x, backend="pjrt", options={"matmul_precision": p}) for p in ("high", "medium")]
    for function in kept:
        function(x)
    assert {"high", "medium"} <= {key[1] for key in compiler._executables}


def test_inductor_s_options_are_said_to_be_ignored() -> None:
    with pytest.warns(IgnoredOptionWarning, match="epilogue_fusion"):
        function = torch.compile(lambda x: x + 1, options={"epilogue_fusion": False})
        assert function(torch.ones(2, device="pjrt")).tolist() == [2, 2]
