"""docs/targets.md: that it says what docs/targets.json holds, and how a result becomes a row of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torch_pjrt.testing import target_table


def test_the_page_is_that_of_the_data() -> None:
    assert (target_table.DOCS / "targets.md").read_text(encoding="utf-8") == target_table.page(), (
        "python -m torch_pjrt.testing.target_table --model BERT-base --target trainium --mode infer writes the page anew"
    )


def _page_of(monkeypatch: pytest.MonkeyPatch, folder: Any, **facts: Any) -> str:
    monkeypatch.setattr(target_table, "DOCS", folder)
    target_table._keep("GPT-2|train|tpu-v6e", facts)
    assert len(json.loads((folder / "targets.json").read_text())) == 1
    return next(line for line in target_table.page().splitlines() if line.startswith("| GPT-2"))


def test_a_row_of_what_does_not_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    error = "JaxRuntimeError: RESOURCE_EXHAUSTED: 64 of 31 GiB\n  more | lines"
    row = _page_of(
        monkeypatch,
        tmp_path,
        verdict="does not fit",
        error=error,
        memory=None,
        argument_bytes=3 << 30,
        chip_memory=1 << 30,
    )
    assert "does not fit: JaxRuntimeError: RESOURCE_EXHAUSTED: 64 of 31 GiB" in row and "more" not in row
    assert "| 1.00 GiB | 3.00 GiB |" in row


def test_a_row_of_findings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    found = [
        {"rule": "R2", "op": "sort"},
        {"rule": "R1", "op": "add"},
        {"rule": "R1", "op": "add"},
        {"rule": "R1", "op": "abs"},
    ]
    assert "findings: R1 (abs, add), R2 (sort) |" in _page_of(monkeypatch, tmp_path, verdict="findings", findings=found)
