"""out= arguments that are empty get the sizes and the strides that CPU torch gives them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

aten = torch.ops.aten
TALL, SQUARE = torch.arange(24.0).reshape(2, 4, 3).sin(), torch.arange(18.0).reshape(2, 3, 3).sin()
CASES: dict[str, tuple[Any, torch.Tensor, dict[str, torch.dtype]]] = {
    "eig": (aten.linalg_eig.out, SQUARE, {"eigenvalues": torch.complex64, "eigenvectors": torch.complex64}),
    "eigh": (aten._linalg_eigh.eigenvalues, SQUARE, {"eigenvalues": torch.float32, "eigenvectors": torch.float32}),
    "svd": (aten.linalg_svd.U, TALL, {"U": torch.float32, "S": torch.float32, "Vh": torch.float32}),
    "qr": (aten.linalg_qr.out, TALL, {"Q": torch.float32, "R": torch.float32}),
    "lu_factor": (aten.linalg_lu_factor.out, TALL, {"LU": torch.float32, "pivots": torch.int32}),
    "inverse": (aten.linalg_inv_ex.inverse, SQUARE, {"inverse": torch.float32, "info": torch.int32}),
    "cholesky_inverse": (aten.cholesky_inverse.out, SQUARE.exp(), {"out": torch.float32}),
    "ifft": (lambda x, out: torch.fft.ifft(x, dim=1, out=out), TALL, {"out": torch.complex64}),
    "triangular_solve": (
        lambda x, **out: aten.triangular_solve.X(x, x, **out),
        SQUARE,
        {"X": torch.float32, "M": torch.float32},
    ),
    "sort": (aten.sort.values, TALL.mT, {"values": torch.float32, "indices": torch.int64}),
}


@pytest.mark.parametrize("name", CASES)
def test_empty_outputs_are_laid_out_as_on_the_cpu(name: str) -> None:
    op, operand, outs = CASES[name]
    found = []
    for device in ("cpu", "pjrt"):
        targets = {n: torch.empty(0, dtype=d, device=device) for n, d in outs.items()}
        op(operand.to(device), **targets)
        found.append([(t.shape, t.stride()) for t in targets.values()])
    assert found[0] == found[1]


FACTORIES: dict[str, Any] = {
    "linspace": lambda out: torch.linspace(50, 1, 50, out=out),
    "logspace": lambda out: torch.logspace(0, 2.5, 6, out=out),
    "arange": lambda out: torch.arange(0, 7, 3, out=out),
    "eye": lambda out: torch.eye(3, out=out),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_factories_compute_in_the_dtype_of_the_output(name: str, dtype: torch.dtype) -> None:
    found = []
    for device in ("cpu", "pjrt"):
        target = torch.empty(0, dtype=dtype, device=device)
        FACTORIES[name](target)
        found.append(target.cpu())
    assert torch.allclose(*found, rtol=1e-15)


def test_the_modulus_is_cast_to_wider_outputs_and_refused_in_place() -> None:
    x = torch.complex(TALL, TALL.mT.contiguous().reshape(TALL.shape))
    out = torch.empty(0, dtype=torch.float64, device="pjrt")
    torch.abs(x.to("pjrt"), out=out)
    torch.testing.assert_close(out.cpu(), x.abs().double())
    with pytest.raises(RuntimeError, match="In-place abs"):
        x.to("pjrt").abs_()


OUTPUTS: dict[str, tuple[torch.dtype, bool, Any]] = {
    "bitwise_and to floats": (torch.float32, True, lambda x, out: torch.bitwise_and(x.int(), 3, out=out)),
    "lt to complex": (torch.complex64, True, lambda x, out: torch.lt(x, 1, out=out)),
    "sum to ints": (torch.int64, True, lambda x, out: torch.sum(x * 1.6, 1, out=out)),
    "cumsum to ints": (torch.int64, True, lambda x, out: torch.cumsum(x * 1.6, 1, out=out)),
    "amax to float64": (torch.float64, False, lambda x, out: torch.amax(x, 1, out=out)),
    "clamp to float64": (torch.float64, False, lambda x, out: torch.clamp(x, 0, 1, out=out)),
    "take to float64": (
        torch.float64,
        False,
        lambda x, out: torch.take(x, torch.tensor([1], device=x.device), out=out),
    ),
    "masked_select to ints": (torch.int64, False, lambda x, out: torch.masked_select(x, x > 1, out=out)),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_dtypes_of_outputs_are_taken_and_refused_as_on_the_cpu(name: str) -> None:
    dtype, taken, call = OUTPUTS[name]
    found = []
    for device in ("cpu", "pjrt"):
        x, out = torch.arange(6.0, device=device).reshape(2, 3), torch.empty(0, dtype=dtype, device=device)
        if taken:
            found.append(call(x, out).tolist())
            continue
        with pytest.raises(RuntimeError):
            call(x, out)
    assert not taken or found[0] == found[1]


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_resizing_an_output_with_elements_warns(device: str) -> None:
    x = torch.ones(3, device=device)
    with pytest.warns(UserWarning, match="output with one or more elements was resized"):
        torch.add(x, x, out=torch.empty(2, device=device))
