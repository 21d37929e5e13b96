"""Executables as artifacts of torch.compiler.save_cache_artifacts and load_cache_artifacts.

Owns the artifact type "torch_pjrt". Content is what the disk cache's entries hold: the plugin's serialised executable under
a key with everything that could make it wrong elsewhere. Loading fills the disk cache, or memory where that is off.
"""

from __future__ import annotations

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from torch_pjrt.compile.captured import Captured
from torch_pjrt.pjrt import cache
from torch_pjrt.pjrt.compiler import Executable

TYPE = "torch_pjrt"
_recorded: set[str] = set()


class ExecutableArtifact(CacheArtifact):
    """One executable; its key is that of the disk cache."""

    def populate_cache(self) -> None:
        """Put it where the compiler looks."""
        cache.preload(self.key, self.content)

    @staticmethod
    def type() -> str:
        """Its name among torch's artifacts."""
        return TYPE


def record(captured: Captured) -> None:
    """Hand what a graph runs to torch, which keeps it until somebody saves."""
    for launch in captured.executables():
        executable = launch.executable
        if not isinstance(executable, Executable) or executable.disk_key in _recorded:
            continue
        body = executable.serialized()
        if body is not None:
            _recorded.add(executable.disk_key)
            CacheArtifactManager.record_artifact(TYPE, executable.disk_key, body)


def register() -> None:
    """Make the type known to torch, once."""
    if TYPE not in CacheArtifactFactory._artifact_types:
        CacheArtifactFactory.register(ExecutableArtifact)
