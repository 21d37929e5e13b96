"""Writes docs/findings/index.md from the table of rules. `./dev docs` runs it through cli/docs.py; a test finds drift."""

from __future__ import annotations

__all__ = ["findings_page"]

from .findings import Rule, Severity
from .rules import FAMILIES, RULES

_HEAD = """# Findings

Written by `./dev docs` from the table in `torch_pjrt/check/rules.py`; do not edit.

Every finding of [`torch-pjrt check`](../check.md) has an id that never changes its meaning. Severities, worst first:

| severity | on a chip that the program was not written for |
|---|---|
| breaks | it raises, or cannot be installed |
| silently-changes | it runs, and does something else: the CPU instead of the chip, no scaling, another precision |
| slows | it runs, and waits or compiles more than it has to |
| style | it works; nothing is lost, or only what one vendor offers |

Inside a branch that only runs with CUDA (`if torch.cuda.is_available():`, `if device.type == "cuda":`) nothing breaks
elsewhere: the branch is skipped. There a finding has the severity in brackets.
"""


def findings_page() -> str:
    """The text of docs/findings/index.md."""
    parts = [_HEAD]
    for prefix, title in FAMILIES.items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(one) for id_, one in RULES.items() if id_.startswith(prefix)]
    return "".join(parts)


def _entry(rule: Rule) -> str:
    differs = rule.guarded not in (None, rule.severity) and rule.severity is Severity.BREAKS
    guarded = f" ({rule.guarded})" if differs else ""
    return (
        f'\n<a id="{rule.id.lower()}"></a>\n### {rule.id} {rule.name}\n\n'
        f"Severity: {rule.severity}{guarded}. {rule.consequence}\n\nFix: {rule.fix}\n"
    )
