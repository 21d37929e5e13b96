"""One text: find, rewrite, find again. Gives the new text, the number of changes and what is left to a person.

Idempotent: what was rewritten is no finding any more. The new text is parsed before it is given out; a text that would
not parse is an error of this program.
"""

from __future__ import annotations

__all__ = ["Ported", "port_text"]

import ast
import dataclasses

import libcst

from torch_pjrt.check import Finding, Source, check_text, examine
from torch_pjrt.check.files import worth_reading
from torch_pjrt.check.ignores import Ignores

from .header import add_header
from .plan import Plan
from .transform import Rewriter


@dataclasses.dataclass(frozen=True, slots=True)
class Ported:
    """The result: `left` are findings in the new text, `changes` the number of rewritten places."""

    text: str
    changes: int
    left: list[Finding]


def port_text(text: str, path: str = "<text>") -> Ported:
    """Port one text. A text that cannot be parsed comes back as it is, with its finding."""
    if not worth_reading(text):
        return Ported(text, 0, check_text(text, path))
    try:
        source = Source(text, path)
    except (SyntaxError, ValueError, RecursionError):
        return Ported(text, 0, check_text(text, path))
    found = examine(source)
    plan = Plan(source, found)
    if not plan.edits:
        return Ported(text, 0, Ignores(text, path).apply(found))
    wrapper = libcst.MetadataWrapper(libcst.parse_module(text))
    rewriter = Rewriter(plan)
    module = wrapper.visit(rewriter)
    if not rewriter.changes:
        return Ported(text, 0, check_text(text, path))
    new = add_header(module, rewriter.needs).code
    ast.parse(new)
    return Ported(new, rewriter.changes, check_text(new, path))
