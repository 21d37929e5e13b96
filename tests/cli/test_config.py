"""The table of settings: parsing, validation, warnings, and the page that is written from it."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import warnings

import pytest

from torch_pjrt import config
from torch_pjrt.cli.docs import settings_page
from torch_pjrt.errors import BadSettingError, UnknownSettingWarning

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> config.Settings:
    """Settings of its own, which read the environment of the test."""
    for name in config.environment(*(row.env for row in config.table())):
        monkeypatch.delenv(name)
    return config.Settings()


def test_there_are_fewer_than_25_and_each_is_documented() -> None:
    rows = config.table()
    assert len(rows) < 25
    assert all(row.help and row.env.startswith("TORCH_PJRT_") for row in rows)
    assert len({row.env for row in rows}) == len(rows)


def test_attribute_and_name_agree() -> None:
    for attribute, row in vars(config.Settings).items():
        if isinstance(row, config.Setting):
            assert row.name == attribute


def test_values_come_from_the_environment_at_first_access(
    fresh: config.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_PJRT_EAGER", "Strict")
    monkeypatch.setenv("TORCH_PJRT_INDEX_CHECKS", "off")
    monkeypatch.setenv("TORCH_PJRT_MAX_PENDING_OPS", " 7 ")
    assert (fresh.eager_mode, fresh.index_checks, fresh.max_pending_ops) == ("strict", False, 7)
    monkeypatch.setenv("TORCH_PJRT_EAGER", "debug")
    assert fresh.eager_mode == "strict"


@pytest.mark.parametrize(
    ("variable", "attribute", "text"),
    [
        ("TORCH_PJRT_EAGER", "eager_mode", "lazy"),
        ("TORCH_PJRT_MAX_PENDING_OPS", "max_pending_ops", "0"),
        ("TORCH_PJRT_MAX_PENDING_OPS", "max_pending_ops", "many"),
        ("TORCH_PJRT_SEGMENTS", "segments", "maybe"),
    ],
)
def test_a_bad_variable_is_refused_with_its_name(
    fresh: config.Settings, monkeypatch: pytest.MonkeyPatch, variable: str, attribute: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(BadSettingError, match=variable):
        getattr(fresh, attribute)


@pytest.mark.parametrize(("name", "value"), [("eager_mode", "x"), ("segments", 1), ("max_pending_ops", True)])
def test_assigning_validates(fresh: config.Settings, name: str, value: object) -> None:
    with pytest.raises(BadSettingError):
        setattr(fresh, name, value)


def test_an_unknown_setting_names_the_nearest(fresh: config.Settings) -> None:
    with pytest.raises(BadSettingError, match="eager_mode"):
        fresh.eager_mod = "debug"


def test_override_puts_values_back(fresh: config.Settings) -> None:
    with pytest.raises(KeyError), fresh.override(eager_mode="debug", segments=False):
        assert (fresh.eager_mode, fresh.segments) == ("debug", False)
        raise KeyError
    assert (fresh.eager_mode, fresh.segments) == ("fused", True)


def test_only_keyed_settings_are_in_the_cache_key(fresh: config.Settings) -> None:
    before = fresh.in_cache_key()
    fresh.eager_mode = "debug"
    assert fresh.in_cache_key() == before
    fresh.index_checks = not fresh.index_checks
    assert fresh.in_cache_key() != before


def test_an_unknown_variable_warns_once_with_the_nearest(
    fresh: config.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_warned_of", set())
    monkeypatch.setenv("TORCH_PJRT_EAGRE", "debug")
    with pytest.warns(UnknownSettingWarning, match=r"did you mean TORCH_PJRT_EAGER\?"):
        assert fresh.eager_mode == "fused"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fresh.segments


def test_the_cache_folder_can_be_off(fresh: config.Settings, tmp_path: pathlib.Path) -> None:
    fresh.cache_dir = "off"
    assert fresh.cache_path() is None
    fresh.cache_dir = str(tmp_path)
    assert fresh.cache_path() == tmp_path


def test_the_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8") == settings_page(), "run ./dev docs"


def test_importing_the_table_imports_neither_torch_nor_jax() -> None:
    code = (
        "import sys, types, pathlib; package = types.ModuleType('torch_pjrt'); "
        f"package.__path__ = [{str(ROOT / 'torch_pjrt')!r}]; sys.modules['torch_pjrt'] = package; "
        "import torch_pjrt.config; sys.exit(len({'torch', 'jax', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
