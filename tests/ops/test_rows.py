"""The lowering table against torch's own schemas: every row is functional, takes what its schema has, and is used."""

from __future__ import annotations

import inspect

import pytest
import torch

from torch_pjrt.ops.registry import ROWS, add_row, load_rows
from torch_pjrt.ops.schema import Kind, find_overload, functional_twin, schema_of

EXTRA = {"rng", "out", "precision", "contiguous", "platform"}
GIVEN = {"dtype"}  # a row may leave the dtype to torch's meta kernel, which has read it
NAMES = sorted(load_rows())
PRESENT = [name for name in NAMES if find_overload(name) is not None]


def test_most_rows_exist_in_this_torch() -> None:
    missing = [n for n in NAMES if n.startswith("aten::") and find_overload(n) is None]
    assert len(missing) <= 10, missing  # overloads of other torch releases


@pytest.mark.parametrize("name", PRESENT)
def test_row_is_functional_and_named_as_its_schema(name: str) -> None:
    op = find_overload(name)
    assert op is not None
    schema, row = schema_of(op), ROWS[name]
    assert not schema.writes, "in-place and out= overloads are derived"
    parameters = inspect.signature(row.fn).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    takes = {p.name for p in parameters.values() if p.default is p.empty} - EXTRA
    has = {a.name for a in schema.arguments if a.kind not in (Kind.DROPPED, Kind.GENERATOR)}
    assert takes <= has, f"no such arguments in {op._schema}"
    assert has - set(parameters) <= GIVEN, f"arguments of {op._schema} that the row ignores"
    options = row.static | row.operands | row.keep
    assert options <= has, f"options for arguments that {op._schema} lacks"


def test_a_second_row_is_refused() -> None:
    with pytest.raises(ValueError, match="two rows for aten::add.Tensor"):
        add_row("add.Tensor", lambda self, other, alpha: self)


@pytest.mark.parametrize(
    ("written", "twin"),
    [
        ("aten::add_.Tensor", "aten::add.Tensor"),
        ("aten::add.out", "aten::add.Tensor"),
        ("aten::all.dims_out", "aten::all.dims"),
        ("aten::all.out", "aten::all.dim"),
        ("aten::__iand__.Tensor", "aten::__and__.Tensor"),
        ("aten::linalg_eigvals.out", "aten::_linalg_eigvals.default"),
        ("aten::max.dim_max", "aten::max.dim"),
        ("aten::mul.Tensor", "aten::mul.Tensor"),
    ],
)
def test_functional_twin(written: str, twin: str) -> None:
    op = find_overload(written)
    assert op is not None
    found = functional_twin(op)
    assert found is not None
    assert f"{found._schema.name}.{found._schema.overload_name or 'default'}" == twin


def test_nearly_every_writing_overload_has_a_twin() -> None:
    writing = []
    for name in torch._C._dispatch_get_all_op_names():
        op = find_overload(name if "." in name else f"{name}.default") if name.startswith("aten::") else None
        if op is not None and schema_of(op).writes:
            writing.append(op)
    alone = [op for op in writing if functional_twin(op) is None]
    assert len(writing) > 1000
    assert len(alone) < 0.1 * len(writing), sorted(str(op) for op in alone)
