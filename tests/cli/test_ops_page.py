"""docs/ops.md says how every operator is served now."""

from __future__ import annotations

import pathlib

import pytest
import torch

from torch_pjrt.cli.ops_page import ops_page, table_version

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "ops.md"


def test_the_table_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if table_version(page) != torch.__version__.partition("+")[0]:
        pytest.skip(f"the table is of torch {table_version(page)}")
    assert ops_page(page) == page, "run ./dev docs"
