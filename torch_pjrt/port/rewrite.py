"""One program: find, rewrite. Gives the new text and the number of rewritten places.

Idempotent: what was rewritten is no finding any more. The new text is parsed before it is given out; a text that would
not parse is an error of this program.
"""

from __future__ import annotations

__all__ = ["rewritten"]

import ast

import libcst

from torch_pjrt.check import Source, examine
from torch_pjrt.check.files import worth_reading

from .header import add_header
from .plan import Plan
from .transform import Rewriter


def rewritten(text: str, path: str) -> tuple[str, int]:
    """The ported text of a program, and how many places changed. One that cannot be parsed comes back as it is."""
    if not worth_reading(text):
        return text, 0
    try:
        source = Source(text, path)
    except (SyntaxError, ValueError, RecursionError):
        return text, 0
    plan = Plan(source, examine(source))
    if not plan.edits:
        return text, 0
    try:
        wrapper = libcst.MetadataWrapper(libcst.parse_module(text))
    except libcst.ParserSyntaxError:  # a newer syntax than libcst knows
        return text, 0
    rewriter = Rewriter(plan)
    module = wrapper.visit(rewriter)
    if not rewriter.changes:
        return text, 0
    new = add_header(module, rewriter.needs).code
    ast.parse(new)
    return new, rewriter.changes
