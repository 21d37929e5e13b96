"""The one table of settings, and the only module that reads the environment.

Each row of `Settings` is a `Setting`: its variable, type, default, help, and whether it changes compiled programs.
A value is read from its variable at first access and kept; assigning validates. After the first access a read is a
plain attribute read. `docs/settings.md` is written from this table (`./dev docs`). Imports neither torch nor JAX.
"""

from __future__ import annotations

__all__ = ["PREFIX", "Setting", "Settings", "child_environment", "environment", "settings", "table"]

import contextlib
import dataclasses
import difflib
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, overload

PREFIX = "TORCH_PJRT_"

_TRUE = frozenset({"1", "true", "on", "yes"})
_FALSE = frozenset({"0", "false", "off", "no"})

T = TypeVar("T", str, int, bool)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """One row of the table. As a class attribute it answers the first read; the value then shadows it."""

    name: str
    default: T
    help: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    in_cache_key: bool = False
    env_suffix: str = ""

    @property
    def env(self) -> str:
        """The environment variable of this setting."""
        return PREFIX + (self.env_suffix or self.name.upper())

    @property
    def type_name(self) -> str:
        """What may be written, in words."""
        if self.choices:
            return " | ".join(f"`{choice}`" for choice in self.choices)
        return {bool: "`1` or `0`", int: "integer", str: "text"}[type(self.default)]

    @overload
    def __get__(self, owner: None, cls: type) -> Setting[T]: ...
    @overload
    def __get__(self, owner: Settings, cls: type) -> T: ...
    def __get__(self, owner: Settings | None, cls: type) -> Setting[T] | T:
        return self if owner is None else owner._load(self)

    def parse(self, text: str) -> T:
        """The value that a variable's text means. Raises BadSettingError."""
        text = text.strip()
        if isinstance(self.default, bool):
            if text.lower() in _TRUE | _FALSE:
                return text.lower() in _TRUE
            raise self._refusal(text)
        if isinstance(self.default, int):
            try:
                return self.validate(int(text))
            except ValueError as error:
                raise self._refusal(text) from error
        return self.validate(text.lower() if self.choices else text)

    def validate(self, value: T) -> T:
        """The value itself when the setting can take it. Raises BadSettingError."""
        if type(value) is not type(self.default):
            raise self._refusal(value)
        if self.choices and value not in self.choices:
            raise self._refusal(value)
        if self.least is not None and value < self.least:  # type: ignore[operator]
            raise self._refusal(value)
        return value

    def _refusal(self, value: object) -> Exception:
        from .errors import BadSettingError

        wanted = self.type_name.replace("`", "") + ("" if self.least is None else f" of at least {self.least}")
        return BadSettingError(
            f"the setting {self.name} cannot be {value!r}",
            todo=f"give {wanted}, by {self.env} or torch_pjrt.settings.{self.name} (default {self.default!r})",
        )


class Settings:
    """The table. Read and assign attributes; `override` sets some for the length of a block."""

    platform = Setting(
        name="platform",
        default="",
        help="PJRT platform to run on: `cpu`, `tpu`, `cuda`, `rocm`, `neuron`, `xpu`, `metal`, ... "
        "Empty takes the best one found. Has effect before the first tensor.",
    )
    device_name = Setting(
        name="device_name",
        default="pjrt",
        help="Name of the device in PyTorch, so that scripts written for `tpu` or `neuron` run. "
        "Read when torch is imported.",
    )
    eager_mode = Setting(
        name="eager_mode",
        default="fused",
        choices=("debug", "strict", "fused"),
        env_suffix="EAGER",
        help="How ops run: one at a time and waited for (`debug`), one at a time (`strict`), or recorded and run as "
        "larger programs (`fused`).",
    )
    cpu_fallback = Setting(
        name="cpu_fallback",
        default="warn",
        choices=("allow", "warn", "error"),
        help="What an op without a lowering does: run on the CPU quietly, with one warning per op, or raise. "
        "Always counted.",
    )
    index_checks = Setting(
        name="index_checks",
        default=True,
        in_cache_key=True,
        help="Whether programs check indices and report those out of range. Without it such an index gives "
        "undefined values.",
    )
    segments = Setting(
        name="segments",
        default=True,
        help="Whether repeated layers in a fused program share one executable. Compile time then does not grow "
        "with depth.",
    )
    max_pending_ops = Setting(
        name="max_pending_ops",
        default=4096,
        least=1,
        help="A fused program is run when it has this many ops, even if nothing asks for a value.",
    )
    compile_threads = Setting(
        name="compile_threads",
        default=0,
        least=0,
        help="Threads that compile the programs of one flush. 0 takes the number of cores, at most 8.",
    )
    cache_dir = Setting(
        name="cache_dir",
        default="",
        help="Folder of compiled programs. Empty is `torch_pjrt` in the user's cache folder; `off` keeps none on disk.",
    )
    cache_limit = Setting(
        name="cache_limit",
        default=8192,
        least=0,
        help="Most MiB that the folder of compiled programs may hold; the longest unused go first. 0 sets no limit.",
    )
    recompile_limit = Setting(
        name="recompile_limit",
        default=64,
        least=0,
        help="Warn when one line of user code has caused this many compiles. 0 never warns.",
    )
    compiled_sizes = Setting(
        name="compiled_sizes",
        default=64,
        least=1,
        help="For how many sizes of its inputs a graph of torch.compile keeps its executables; the longest unused go "
        "first.",
    )
    keep_memory = Setting(
        name="keep_memory",
        default=True,
        help="On the CPU, whether memory that is freed stays with the process for its next use (where the C library is "
        "glibc). `torch.accelerator.empty_cache()` gives it back. Has effect before the first tensor.",
    )
    dump = Setting(
        name="dump",
        default="",
        help="Folder into which every compiled program is written as StableHLO and as optimised HLO, with a list of the "
        "user's lines, and every graph of torch.compile as text.",
    )
    log = Setting(
        name="log",
        default="",
        help="Log levels: `debug`, or by area `compile=debug,cache=info`. Empty leaves logging to the program.",
    )

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = find(name).validate(value)

    def _load(self, setting: Setting[T]) -> T:
        """Read one setting from the environment and keep it."""
        _warn_of_unknown_variables()
        text = os.environ.get(setting.env, "")
        value = setting.parse(text) if text.strip() else setting.default
        self.__dict__[setting.name] = value
        return value

    @contextlib.contextmanager
    def override(self, **values: str | int | bool) -> Iterator[Settings]:
        """Set some settings for the length of a block."""
        before = {name: getattr(self, name) for name in values}
        checked = {name: find(name).validate(value) for name, value in values.items()}
        self.__dict__.update(checked)
        try:
            yield self
        finally:
            self.__dict__.update(before)

    def in_cache_key(self) -> tuple[tuple[str, str | int | bool], ...]:
        """(name, value) of the settings that change compiled programs."""
        return tuple((row.name, getattr(self, row.name)) for row in _KEYED)

    def cache_path(self) -> pathlib.Path | None:
        """Folder of the disk cache, or None when it is off."""
        text = self.cache_dir
        if text.lower() == "off":
            return None
        return pathlib.Path(text).expanduser() if text else user_cache_folder() / "torch_pjrt"

    def reload(self) -> None:
        """Forget all values, so that the next reads see the environment of now. For tests."""
        self.__dict__.clear()


def table() -> tuple[Setting[Any], ...]:
    """All rows, in the order in which they are written."""
    return tuple(row for row in vars(Settings).values() if isinstance(row, Setting))


def find(name: str) -> Setting[Any]:
    """The row of that name. Raises BadSettingError, with the nearest name."""
    row = vars(Settings).get(name)
    if isinstance(row, Setting):
        return row
    from .errors import BadSettingError

    near = difflib.get_close_matches(name, [each.name for each in table()], n=1, cutoff=0.4)
    raise BadSettingError(f"there is no setting {name!r}", todo=f"did you mean {near[0]!r}?" if near else None)


def user_cache_folder() -> pathlib.Path:
    """The folder in which this user's programs keep caches, as the platform has it."""
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        if os.environ.get(variable):
            return pathlib.Path(os.environ[variable])
    return pathlib.Path.home() / ".cache"


def environment(*names: str) -> dict[str, str]:
    """Those of the named variables that are set: for reports, since no other module reads the environment."""
    return {name: os.environ[name] for name in names if name in os.environ}


def child_environment(changes: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for a child process: this one's, with changes."""
    return {**os.environ, **(changes or {})}


_warned_of: set[str] = set()


def _warn_of_unknown_variables() -> None:
    """Warn, once each, of TORCH_PJRT_* variables that no setting has."""
    unknown = [name for name in os.environ if name.startswith(PREFIX) and name not in _VARIABLES]
    for name in unknown:
        if name in _warned_of:
            continue
        _warned_of.add(name)
        from .errors import UnknownSettingWarning

        near = difflib.get_close_matches(name, _VARIABLES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "docs/settings.md lists those there are."
        warnings.warn(f"{name} is not a setting of torch-pjrt; {hint}", UnknownSettingWarning, stacklevel=4)


_VARIABLES = frozenset(row.env for row in table())
_KEYED = tuple(row for row in table() if row.in_cache_key)

settings = Settings()
