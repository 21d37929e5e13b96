"""The documentation of a rule, from the page that docs/ and the installed package share.

The wheel carries docs/findings/index.md as findings.md beside this file; a checkout has it in docs/.
"""

from __future__ import annotations

__all__ = ["documentation_url", "explanation"]

import functools
import importlib.metadata
import pathlib

from .findings import Rule

_HERE = pathlib.Path(__file__).resolve().parent
_PLACES = (_HERE / "findings.md", _HERE.parents[1] / "docs" / "findings" / "index.md")


@functools.cache
def _page() -> str:
    found = next((path for path in _PLACES if path.is_file()), None)
    return found.read_text(encoding="utf-8") if found else ""


def explanation(rule: Rule) -> str:
    """What the page says of a rule, as Markdown: severity, consequence, fix, examples."""
    _, _, rest = _page().partition(f'<a id="{rule.id.lower()}"></a>\n')
    entry = rest.partition('<a id="')[0].partition("\n## ")[0].strip()
    return entry or f"### {rule.id} {rule.name}\n\nSeverity: {rule.severity}. {rule.consequence}\n\nFix: {rule.fix}"


@functools.cache
def _documentation() -> str | None:
    """Where the docs folder is published, as the package's metadata has it."""
    try:
        urls = importlib.metadata.metadata("torch-pjrt").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    pairs = (one.partition(",") for one in urls)
    return next((url.strip().rstrip("/") for label, _, url in pairs if label.strip().lower() == "documentation"), None)


def documentation_url(rule: Rule) -> str | None:
    """The address of a rule's documentation, or None when the package says no address."""
    base = _documentation()
    return f"{base}/{rule.doc.removeprefix('docs/')}" if base else None
