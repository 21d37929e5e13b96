"""Eigenvalues and singular values. XLA has general (nonsymmetric) eigenvalues on CPU only.

Signs and phases of eigenvectors and singular vectors are free, as they are between torch's own devices.
"""

from __future__ import annotations

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype
from torch_pjrt.lowerings.linalg import Out, adjoint, identity, triangle
from torch_pjrt.ops.registry import row


def _nothing(out: Out) -> tuple[Array, ...]:
    """Results for matrices without elements: empty, or identities where a basis is asked for."""
    square = (len(s) > 1 and s[-1] == s[-2] and s[-1] > 0 for s, _ in out)
    return tuple(
        identity(shape, dtype) if basis else lax.full(shape, 0, dtype)
        for basis, (shape, dtype) in zip(square, out, strict=True)
    )


@row("_linalg_eigh")
def linalg_eigh(A: Array, UPLO: str, compute_v: bool, out: Out) -> tuple[Array, ...]:
    """Eigenvalues in rising order and eigenvectors of a Hermitian matrix given by one triangle."""
    if A.size == 0:
        return _nothing(out)
    upper = UPLO.upper() == "U"
    half = triangle(adjoint(A) if upper else A, upper=False)
    whole = lax.add(half, adjoint(triangle(half, upper=False, offset=-1)))
    vectors, values = lax.linalg.eigh(whole, symmetrize_input=False)
    return values, vectors if compute_v else lax.full(out[1][0], 0, out[1][1])


@row("linalg_eig")
def linalg_eig(self: Array, out: Out) -> tuple[Array, ...]:
    """Complex eigenvalues and right eigenvectors."""
    if self.size == 0:
        return _nothing(out)
    values, vectors = lax.linalg.eig(self, compute_left_eigenvectors=False)
    return as_dtype(values, out[0][1]), as_dtype(vectors, out[1][1])


@row("_linalg_eigvals")
def linalg_eigvals(self: Array, out: Out) -> Array:
    """Complex eigenvalues."""
    if self.size == 0:
        return _nothing(out)[0]
    values = lax.linalg.eig(self, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
    return as_dtype(values, out[0][1])


@row("_linalg_svd")
def linalg_svd(A: Array, full_matrices: bool, compute_uv: bool, driver: str | None, out: Out) -> tuple[Array, ...]:
    """U, S in falling order, V^H; U and V^H are empty unless asked for."""
    if A.size == 0:
        return _nothing(out)
    if compute_uv:
        return tuple(lax.linalg.svd(A, full_matrices=full_matrices))
    values = lax.linalg.svd(A, full_matrices=False, compute_uv=False)
    values = values[0] if isinstance(values, (tuple, list)) else values
    none = [lax.full(shape, 0, np.dtype(dtype)) for shape, dtype in (out[0], out[2])]
    return none[0], values, none[1]
