"""docs/ops.md says how every operator is served now, and what the committed data file says is proven."""

from __future__ import annotations

import json
import pathlib

import pytest
import torch

from torch_pjrt.cli.ops_page import DATA, ops_page, table_version

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "ops.md"


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if table_version(page) != torch.__version__.partition("+")[0]:
        pytest.skip(f"the table is of torch {table_version(page)}")
    assert ops_page(page) == page, "run ./dev docs"


def test_every_entry_has_a_line_with_its_dtypes() -> None:
    data, page = json.loads(DATA.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    assert len(data["entries"]) > 600
    for entry, index in data["entries"].items():
        assert f"\n| `{entry}` | {data['patterns'][index].get('forward', {}).get('fused', '')} |" in page
