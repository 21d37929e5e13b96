"""Operators that may run on the CPU, each with its reason. Any other fallback fails the node in which it happens."""

from __future__ import annotations

_LAPACK = "needs LAPACK's own factored form, which XLA does not offer; used for small matrices"

ALLOWED: dict[str, str] = {
    "geqrf": _LAPACK,
    "linalg_ldl_factor_ex": _LAPACK,
    "linalg_ldl_solve": _LAPACK,
    "linalg_lstsq": "its drivers are LAPACK's, with their rank decisions",
    "special_airy_ai": "a rarely used special function; correct on the CPU in every variant",
}
