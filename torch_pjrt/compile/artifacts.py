"""Executables as artifacts of torch.compiler.save_cache_artifacts and load_cache_artifacts.

Owns the artifact type "torch_pjrt". Content is what the disk cache's entries hold: the plugin's serialised executable under
a key with everything that could make it wrong elsewhere. Loading fills the disk cache, or memory where that is off. torch
must know the type before anything is compiled, so this module is imported with torch, and imports no JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

if TYPE_CHECKING:
    from torch_pjrt.compile.captured import Captured

TYPE = "torch_pjrt"
_recorded: set[str] = set()


class ExecutableArtifact(CacheArtifact):
    """One executable; its key is that of the disk cache."""

    def populate_cache(self) -> None:
        """Put it where the compiler looks."""
        from torch_pjrt.pjrt import cache

        cache.preload(self.key, self.content)

    @staticmethod
    def type() -> str:
        """Its name among torch's artifacts."""
        return TYPE


def record(captured: Captured) -> None:
    """Hand what a graph has run to torch, which keeps it until somebody saves."""
    for executable in captured.executables():
        if executable.disk_key in _recorded:
            continue
        body = executable.serialized()
        if body is not None:
            _recorded.add(executable.disk_key)
            CacheArtifactManager.record_artifact(TYPE, executable.disk_key, body)


def register() -> None:
    """Make the type known to torch, once."""
    if TYPE not in CacheArtifactFactory._artifact_types:
        CacheArtifactFactory.register(ExecutableArtifact)
