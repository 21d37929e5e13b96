"""linalg_lstsq: least squares through QR or singular values, written with other operators.

Its results differ in form with the driver and, for the residuals of gelsd and gelss, with the rank, which is read.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def _by_qr(a: Tensor, b: Tensor) -> Tensor:
    """The solution of a problem of full rank; the shortest where there are many."""
    if a.shape[-2] >= a.shape[-1]:
        q, r = torch.linalg.qr(a)
        return torch.linalg.solve_triangular(r, q.mH @ b, upper=True)
    q, r = torch.linalg.qr(a.mH)
    return q @ torch.linalg.solve_triangular(r.mH, b, upper=False)


def _by_singular_values(a: Tensor, b: Tensor, rcond: float) -> tuple[Tensor, Tensor, Tensor]:
    """The shortest solution, singular values, and the rank: how many are above rcond times the largest."""
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    kept = s > rcond * s[..., :1] if s.shape[-1] else s > 0
    inverse = torch.where(kept, 1 / torch.where(kept, s, 1), 0).unsqueeze(-1)
    return vh.mH @ ((u.mH @ b) * inverse), s, kept.sum(-1)


def linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(solution, residuals, rank, singular values), each empty where torch's driver gives none."""
    _check(self, b, driver)
    driver = driver or "gelsy"
    rows, columns = self.shape[-2:]
    vector = _is_vector(self, b)
    right = b.unsqueeze(-1) if vector else b
    batch = torch.broadcast_shapes(self.shape[:-2], right.shape[:-2])
    a, right = self.expand(*batch, rows, columns), right.expand(*batch, rows, right.shape[-1])
    limit = torch.finfo(a.dtype).eps * max(rows, columns) if rcond is None else rcond
    rank = a.new_empty(0, dtype=torch.int64)
    singular = residuals = a.new_empty(0, dtype=a.dtype.to_real())
    if a.numel() == 0 or right.numel() == 0:
        solution = a.new_zeros((*batch, columns, right.shape[-1]))
        if driver != "gels":
            rank = a.new_zeros(batch, dtype=torch.int64)
        if driver in ("gelsd", "gelss"):
            singular = singular.new_zeros((*batch, min(rows, columns)))
    elif driver == "gels":
        solution = _by_qr(a, right)
    else:
        solution, s, rank = _by_singular_values(a, right, limit)
        singular = s if driver in ("gelsd", "gelss") else singular
    if rows > columns and driver != "gelsy" and (driver == "gels" or bool((rank == columns).all())):
        residuals = (a @ solution - right).abs().square().sum(-2)
    return solution.squeeze(-1) if vector else solution, residuals, rank, singular


def _is_vector(a: Tensor, b: Tensor) -> bool:
    return b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])


def _check(a: Tensor, b: Tensor, driver: str | None) -> None:
    if a.dim() < 2 or b.dim() < 1:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions and other at least 1.")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"torch.linalg.lstsq: Expected input and other to have the same dtype, but got {a.dtype} and {b.dtype}"
        )
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss) but got " + str(driver)
        )
    rows = b.shape[-1] if _is_vector(a, b) else b.shape[-2]
    if rows != a.shape[-2] or not 0 <= a.dim() - b.dim() <= 1 and b.dim() > 1:
        raise RuntimeError(
            f"torch.linalg.lstsq: input of shape {list(a.shape)} and other of shape {list(b.shape)} do not fit"
        )


KERNELS = {"linalg_lstsq": linalg_lstsq}


def register(library: torch.library.Library) -> None:
    """Register this module's kernel."""
    for name, fn in KERNELS.items():
        library.impl(name, fn, "PrivateUse1")
