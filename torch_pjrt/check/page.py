"""Writes docs/findings/index.md from the table of rules, with examples from the programs that test it.

A line of those programs that must be found ends in `# expect: PJ101`, a look-alike that must not in `# quiet: PJ101`.
`./dev docs` runs it through cli/docs.py; a test finds drift.
"""

from __future__ import annotations

__all__ = ["Examples", "examples_of", "findings_page"]

import pathlib
import re
from collections.abc import Iterable, Mapping

from .findings import Rule, Severity
from .rules import FAMILIES, RULES

# By rule: lines that are found, and lines that look alike and are not.
Examples = Mapping[str, tuple[list[str], list[str]]]
_NOTE = re.compile(r"\s*(#|;|\s)\s*(?P<kind>expect|quiet): (?P<ids>.*)$")
_SHOWN = 3

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


def examples_of(programs: Iterable[pathlib.Path]) -> Examples:
    """The lines of each rule, from its tests."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for path in programs:
        for line in path.read_text(encoding="utf-8").splitlines():
            match = _NOTE.search(line)
            for word in match["ids"].split(",") if match else ():
                id_ = word.strip().split("/")[0]
                lines = found.setdefault(id_, ([], []))[match["kind"] == "quiet"]  # type: ignore[index]
                code = _NOTE.sub("", line).strip()
                if code not in lines:
                    lines.append(code)
    return found


def findings_page(examples: Examples) -> str:
    """The text of docs/findings/index.md."""
    parts = [_HEAD]
    for prefix, title in FAMILIES.items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(one, *examples.get(id_, ([], []))) for id_, one in RULES.items() if id_.startswith(prefix)]
    return "".join(parts)


def _entry(rule: Rule, found: list[str], quiet: list[str]) -> str:
    differs = rule.guarded not in (None, rule.severity) and rule.severity is Severity.BREAKS
    guarded = f" ({rule.guarded})" if differs else ""
    text = (
        f'\n<a id="{rule.id.lower()}"></a>\n### {rule.id} {rule.name}\n\n'
        f"Severity: {rule.severity}{guarded}. {rule.consequence}\n\nFix: {rule.fix}\n"
    )
    for title, lines in (("Found", found), ("Not found", quiet)):
        if lines:
            text += f"\n{title}:\n\n```python\n" + "".join(f"{one}\n" for one in lines[:_SHOWN]) + "```\n"
    return text
