"""`torch-pjrt doctor`: what it says of a sound environment and of broken ones."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from torch_pjrt.cli import doctor, platforms
from torch_pjrt.cli.main import main


@pytest.fixture(scope="module")
def sound() -> dict:
    """The JSON report of this environment."""
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_the_device_works_here(sound: dict) -> None:
    assert sound["ok"]
    assert sound["device"]["value"] == 12


def test_it_lists_versions_and_the_cpu(sound: dict) -> None:
    assert sound["versions"]["torch"] and sound["versions"]["jaxlib"]
    cpu = next(each for each in sound["platforms"] if each["name"] == "cpu")
    assert cpu["devices"]


def test_the_page_says_the_same(monkeypatch: pytest.MonkeyPatch, sound: dict) -> None:
    sound["findings"] = []
    sound["platforms"] = [doctor.PlatformState(**each) for each in sound["platforms"]]
    monkeypatch.setattr(doctor, "examine", lambda **_: doctor.Report(**sound))
    done = CliRunner().invoke(main, ["doctor"])
    assert "the device works" in done.output and "Google TPU" in done.output


def state(name: str, **fields: object) -> doctor.PlatformState:
    values = {"packages": {}, "signs": [], "devices": [], "trouble": "", **fields}
    return doctor.PlatformState(name=name, chip="", **values)


def test_a_chip_without_its_plugin_gets_the_command() -> None:
    found = doctor.find_trouble({"slot": "pjrt"}, [state("cuda", signs=["/dev/nvidia0"])])
    assert [finding.level for finding in found] == ["advice"]
    assert "torch-pjrt[cuda13]" in found[0].todo


def test_a_plugin_without_a_device_is_an_error() -> None:
    broken = state("tpu", packages={"libtpu": "0.1"}, signs=["/dev/accel0"], trouble="in use")
    found = doctor.find_trouble({"slot": "pjrt"}, [broken])
    assert [finding.level for finding in found] == ["error"]
    assert "in use" in found[0].what


def test_a_slot_held_by_another_is_an_error() -> None:
    found = doctor.find_trouble({"slot": "npu"}, [])
    assert found[0].level == "error" and "npu" in found[0].what


def test_a_device_that_does_not_work_is_an_error() -> None:
    found = doctor.find_trouble({"trouble": "no such thing"}, [])
    assert "no such thing" in found[0].what


def test_a_child_that_fails_is_reported_not_raised() -> None:
    assert "boom" in doctor._child("raise SystemExit('boom')", timeout=30)["trouble"]
    assert "no answer" in doctor._child("import time; time.sleep(9)", timeout=0.2)["trouble"]


def test_every_platform_says_how_to_install_it() -> None:
    assert all(platform.install.startswith("pip install") for platform in platforms.PLATFORMS)
