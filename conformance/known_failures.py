"""What does not work, and why. Strict: each entry is run and must fail; one that passes fails the suite.

An entry is (test, op, dtype, mode) -> reason; "*" matches anything. The tests may not excuse themselves in another way.
"""

from __future__ import annotations

COMPLEX32 = "the device has no complex32, because XLA has none"

KNOWN_FAILURES: dict[tuple[str, str, str, str], str] = {
    ("*", "chalf", "*", "*"): COMPLEX32,
    ("*", "complex", "float16", "*"): COMPLEX32,
    ("*", "view_as_complex", "float16", "*"): COMPLEX32,
}


def reason_for(test: str, op: str, dtype: str, mode: str) -> str | None:
    """The reason why a node must fail, or None."""
    for key, reason in KNOWN_FAILURES.items():
        if all(want in ("*", have) for want, have in zip(key, (test, op, dtype, mode), strict=True)):
            return reason
    return None
