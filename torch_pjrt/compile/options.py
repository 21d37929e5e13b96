"""What torch.compile(backend="pjrt") takes as `mode=` and `options=`, and what each does.

docs/torch_compile.md lists these tables; a test compares them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch_pjrt.dispatch.launch import Policy
from torch_pjrt.errors import BadSettingError

MODES: dict[str, str] = {
    "default": "repeated layers share executables, as the setting `segments` says",
    "reduce-overhead": "one executable per graph: least work on the host per call, longer compiles for deep models",
    "max-autotune": "the first six calls of each graph try both ways and time them; the faster one stays",
    "max-autotune-no-cudagraphs": "the same as `max-autotune`: there are no CUDA graphs here",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One row: the types that it takes, and what it does."""

    types: tuple[type, ...]
    help: str
    check: Callable[[Any], str | None] = lambda value: None  # what is wrong with a value of the right type


def _precision(value: str) -> str | None:
    names = ("highest", "high", "medium")
    return None if value in names else f"give one of {', '.join(names)}"


def _positive(value: int) -> str | None:
    return None if value > 0 and not isinstance(value, bool) else "give a positive integer"


def _count(value: int) -> str | None:
    return None if value >= 0 and not isinstance(value, bool) else "give an integer, at least 0"


def _flags(value: Mapping[Any, Any]) -> str | None:
    sound = all(isinstance(k, str) and isinstance(v, (str, int, float, bool)) for k, v in value.items())
    return None if sound else "give names of XLA's options with text, numbers or booleans"


OPTIONS: dict[str, Option] = {
    "share_layers": Option((bool,), "whether repeated layers share executables, in place of what the mode says"),
    "recompute": Option(
        (bool,),
        "whether backward computes cheap values again, comparisons and roundings apart (default), or forward saves all",
    ),
    "compiled_sizes": Option(
        (int,), "for how many sizes a graph keeps its executables, in place of the setting", _positive
    ),
    "sizes_ahead": Option(
        (int,), "how many of the next sizes of a growing input are compiled before they come (default 0)", _count
    ),
    "matmul_precision": Option(
        (str,), "`highest`, `high` or `medium`, in place of torch.set_float32_matmul_precision", _precision
    ),
    "xla_options": Option((dict,), "options of XLA's compiler by their names, given to it as they are", _flags),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What one torch.compile was asked for."""

    recompute: bool = True
    compiled_sizes: int | None = None
    sizes_ahead: int = 0
    policy: Policy = Policy()
    tune: bool = False


def parse(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """The meaning of torch.compile's arguments. Raises BadSettingError, with the nearest name, for one that there is not."""
    if mode is not None and mode not in MODES:
        raise BadSettingError(f"torch.compile has no mode {mode!r}", todo=_choose(mode, MODES))
    given = dict(options or {})
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            raise BadSettingError(f'the backend "pjrt" has no option {name!r}', todo=_choose(name, OPTIONS))
        wrong = option.check(value) if isinstance(value, option.types) else f"give a {option.types[0].__name__}"
        if wrong:
            raise BadSettingError(f"the option {name!r} cannot be {value!r}", todo=wrong)
    share = given.get("share_layers", False if mode == "reduce-overhead" else None)
    policy = Policy(share, given.get("matmul_precision"), tuple(sorted(given.get("xla_options", {}).items())))
    return Options(
        recompute=given.get("recompute", True),
        compiled_sizes=given.get("compiled_sizes"),
        sizes_ahead=given.get("sizes_ahead", 0),
        policy=policy,
        tune=mode is not None and mode.startswith("max-autotune") and "share_layers" not in given,
    )


def _choose(name: str, table: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, table, n=1, cutoff=0.4)
    return f"{f'Did you mean {near[0]!r}? ' if near else ''}There are: {', '.join(table)}."
