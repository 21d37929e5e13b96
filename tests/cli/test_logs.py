"""Loggers by area and the setting that gives them levels."""

from __future__ import annotations

import logging

import pytest

from torch_pjrt import logs
from torch_pjrt.errors import BadSettingError


def test_levels_by_area() -> None:
    assert logs.parse("") == {}
    assert logs.parse("debug") == {"": logging.DEBUG}
    assert logs.parse("compile=debug, cache=info") == {"compile": logging.DEBUG, "cache": logging.INFO}


@pytest.mark.parametrize("text", ["loud", "nowhere=debug", "compile="])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadSettingError):
        logs.parse(text)


def test_nothing_is_configured_by_a_logger() -> None:
    assert logs.logger("compile").name == "torch_pjrt.compile"
    assert not logs.logger("compile").handlers
