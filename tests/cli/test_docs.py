"""The pages say what the code has."""

from __future__ import annotations

import pathlib
import re

import pytest

from torch_pjrt import errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "AGENTS.md", *(ROOT / "docs").glob("*.md")])


def test_every_error_and_warning_is_documented() -> None:
    headings = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE))
    assert headings == set(errors.__all__) - {"PjrtError", "PjrtWarning"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing
