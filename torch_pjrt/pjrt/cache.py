"""The disk cache of executables: one file per program, written atomically, checked on reading, never unpickled.

Format: one line of JSON (magic, sha256 of the body), then the plugin's serialised executable. The key holds everything
that could make an executable wrong elsewhere; a damaged or foreign entry is reported, dropped and compiled anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import warnings
from pathlib import Path

import jax

from torch_pjrt._version import __version__
from torch_pjrt.config import settings
from torch_pjrt.errors import CacheEntryWarning
from torch_pjrt.logs import logger
from torch_pjrt.pjrt import jax_compat
from torch_pjrt.pjrt.client import describe

MAGIC = "torch-pjrt executable 1"
_log = logger("cache")


@functools.cache
def _sources() -> str:
    """A hash of the code that turns a Program into StableHLO, so that an edited row is never served from disk."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("lowerings", "program", "ops", "pjrt"):
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(program_text: str, options: str) -> str:
    """The name of a program's entry."""
    parts = (
        program_text,
        options,
        describe(),
        jax.__version__,
        jax_compat.jaxlib_version(),
        __version__,
        _sources(),
        repr(settings.in_cache_key()),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def folder() -> Path | None:
    """Where entries lie; None when the cache is off."""
    return settings.cache_path()


_preloaded: dict[str, bytes] = {}


def preload(key: str, body: bytes) -> None:
    """Take an entry that was saved elsewhere: to disk, or into memory where the disk cache is off."""
    if folder() is None:
        _preloaded[key] = body
    elif load(key) is None:
        store(key, body)


def load(key: str) -> bytes | None:
    """An entry's body, or None. A damaged entry is removed with a warning."""
    if key in _preloaded:
        return _preloaded[key]
    base = folder()
    if base is None:
        return None
    path = base / key[:2] / key
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    head, _, body = raw.partition(b"\n")
    try:
        facts = json.loads(head)
        sound = facts["magic"] == MAGIC and facts["sha256"] == hashlib.sha256(body).hexdigest()
    except (ValueError, KeyError, TypeError):
        sound = False
    if sound:
        with contextlib.suppress(OSError):
            os.utime(path)  # prune() drops the longest unused
        return body
    reject(key, "it is damaged or not ours")
    return None


def reject(key: str, why: str) -> None:
    """Drop an entry and say so."""
    _preloaded.pop(key, None)
    base = folder()
    if base is None:
        return
    path = base / key[:2] / key
    warnings.warn(f"cache entry {path.name[:16]} dropped and compiled anew: {why}", CacheEntryWarning, stacklevel=3)
    path.unlink(missing_ok=True)


def store(key: str, body: bytes) -> None:
    """Write an entry; a failure (full disk, read-only folder) is logged and otherwise ignored."""
    base = folder()
    if base is None:
        return
    head = json.dumps({"magic": MAGIC, "sha256": hashlib.sha256(body).hexdigest()}).encode()
    try:
        place = base / key[:2]
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, delete=False) as out:
            out.write(head + b"\n" + body)
        os.replace(out.name, place / key)
        _prune_once(base)
    except OSError as error:
        _log.warning("cannot write cache entry: %s", error)


@functools.cache
def _prune_once(base: Path) -> None:
    prune(base, settings.cache_limit << 20)


def prune(base: Path, limit: int) -> None:
    """Drop the longest unused entries until the folder holds at most `limit` bytes (0: no limit)."""
    entries = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in base.glob("??/*") if path.is_file())
    excess = sum(size for _, size, _ in entries) - limit
    for _, size, path in entries if limit else ():
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size
