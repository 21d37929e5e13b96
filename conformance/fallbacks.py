"""Operators that may run on the CPU, each with its reason. Any other fallback fails the node in which it happens."""

from __future__ import annotations

ALLOWED: dict[str, str] = {
    "_validate_compressed_sparse_indices": "checks values on request only (check_invariants=True), and raises on the host",
}
