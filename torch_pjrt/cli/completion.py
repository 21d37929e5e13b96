"""`torch-pjrt completion SHELL`: prints the script that completes commands, options, files and names in a shell.

The script calls `torch-pjrt` at each Tab, so it never goes out of date. Names that options take come from the tables.
"""

from __future__ import annotations

__all__ = ["SHELLS", "rule_ids", "script", "target_names"]

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")


def script(command: click.Command, shell: str) -> str:
    """What the shell has to read."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion is known for {shell}")
    return found(command, {}, "torch-pjrt", "_TORCH_PJRT_COMPLETE").source()


def rule_ids(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Ids of rules with their names; behind a comma, the next one."""
    from torch_pjrt.check import RULES

    done, comma, last = begun.rpartition(",")
    return [
        CompletionItem(done + comma + id_, help=one.name) for id_, one in RULES.items() if id_.startswith(last.upper())
    ]


def target_names(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Chips that `torch-pjrt compile` knows."""
    from torch_pjrt.pjrt.targets import targets

    return [CompletionItem(name) for name in targets() if name.startswith(begun)]
