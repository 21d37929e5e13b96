"""What the shell completes after options of `torch-pjrt plan`: found without loading the planner or JAX."""

from __future__ import annotations

__all__ = ["chips", "first", "models"]

import pathlib

import click
from click.shell_completion import CompletionItem

_PLAN = pathlib.Path(__file__).parents[1] / "plan"
# The built-in models, as families.BUILT_IN has them; importing it would load the planner.
MODELS = (
    "gpt2 llama2-7b llama2-70b llama3-8b llama3-70b mixtral-8x7b tiny whisper-large whisper-tiny resnet50 unet".split()
)


def _names() -> list[str]:
    return sorted(path.stem for path in (_PLAN / "chips").glob("*.toml"))


def first(*words: str) -> click.ParamType:
    """A type that takes any text and completes these words: what is wrong is said by the plan itself."""

    class Words(click.ParamType):
        name = "text"

        def shell_complete(
            self, context: click.Context, parameter: click.Parameter, incomplete: str
        ) -> list[CompletionItem]:
            return [CompletionItem(w) for w in words if w.startswith(incomplete)]

    return Words()


class _Chips(click.ParamType):
    """One chip, or several with commas between: the last is completed."""

    name = "text"

    def __init__(self, several: bool) -> None:
        self.several = several

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",") if self.several else ("", "", incomplete)
        used = before.split(",")
        known = [*_names(), *(["all"] if self.several and not before else [])]
        return [CompletionItem(before + comma + n) for n in known if n.startswith(last) and n not in used]


class _Models(click.ParamType):
    """A built-in model, or a file."""

    name = "text"

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found = [CompletionItem(m) for m in MODELS if m.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


def chips(several: bool = False) -> click.ParamType:
    """The type of an option that names chips."""
    return _Chips(several)


def models() -> click.ParamType:
    """The type of --model."""
    return _Models()
