"""Users' programs compiled on the device, against the same programs in eager on the CPU: values, strides and numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.compile.programs import PROGRAMS, derivatives, loops, modules, tracing

TABLES = (derivatives, loops, modules, tracing)  # importing them fills the table


def eagerly(function: Any = None, **kwargs: Any) -> Any:
    """In place of torch.compile: as it is."""
    return function


def _leaves(results: Any) -> list[Any]:
    """What a program gives, tensors on the CPU."""
    leaves = torch.utils._pytree.tree_leaves(results)
    return [x.detach().cpu() if isinstance(x, torch.Tensor) else x for x in leaves]


def _check(found: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, check_stride=True)
    else:
        assert found == (pytest.approx(expected, rel=rtol, abs=atol) if isinstance(expected, float) else expected)


@pytest.mark.filterwarnings("ignore::torch_pjrt.errors.HostReadWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if p.quick else pytest.mark.slow) for n, p in PROGRAMS.items()]
)
def test_program(name: str) -> None:
    program = PROGRAMS[name]
    expected = _leaves(program.run("cpu", eagerly))
    torch.pjrt.reset_stats()
    found = _leaves(program.run("pjrt", torch.compile))
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        _check(ours, theirs, program.rtol, program.atol)
    stats = torch.pjrt.stats()
    assert stats["fallbacks"] == {}
    assert stats["programs_launched"] > 0
