"""Loggers by area: `torch_pjrt.compile`, `torch_pjrt.cache`, `torch_pjrt.dispatch`, ...

Nothing is configured on import, as a library should. `apply_setting` reads the `log` setting (TORCH_PJRT_LOG) and is
called once, when the device is first used; a program that configures logging itself leaves that setting empty.
"""

from __future__ import annotations

__all__ = ["AREAS", "apply_setting", "logger"]

import logging

from .config import settings

ROOT = "torch_pjrt"
AREAS = ("cache", "cli", "compile", "device", "dispatch", "fallback", "memory", "random", "transfer")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def logger(area: str) -> logging.Logger:
    """The logger of an area."""
    return logging.getLogger(f"{ROOT}.{area}")


def apply_setting() -> None:
    """Set levels as the `log` setting says, and give our loggers a handler when nobody has one."""
    levels = parse(settings.log)
    if not levels:
        return
    for area, level in levels.items():
        (logger(area) if area else logging.getLogger(ROOT)).setLevel(level)
    ours = logging.getLogger(ROOT)
    if not ours.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        ours.addHandler(handler)


def parse(text: str) -> dict[str, int]:
    """`debug` or `compile=debug,cache=info` as levels by area; "" is all areas. Raises BadSettingError."""
    levels: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        area, _, level = part.rpartition("=")
        if level.lower() not in _LEVELS or (area and area not in AREAS):
            from .errors import BadSettingError

            raise BadSettingError(
                f"the setting log cannot be {text!r}",
                todo=f"give a level ({', '.join(_LEVELS)}), or AREA=LEVEL with an area of: {', '.join(AREAS)}",
            )
        levels[area] = _LEVELS[level.lower()]
    return levels
