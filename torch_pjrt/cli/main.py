"""The command `torch-pjrt` and its subcommands. Each is imported when it is asked for, so `--help` needs no torch."""

from __future__ import annotations

__all__ = ["main"]

import sys

import click

from torch_pjrt._version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torch-pjrt")
def main() -> None:
    """PyTorch on every chip that has a PJRT plugin."""


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait for each platform.")
def doctor(as_json: bool, timeout: float) -> None:
    """Say what is installed, which chips are found, what is missing, and the command that installs it.

    Exits with 1 when the device does not work here, and with 0 otherwise.
    """
    from . import doctor as command

    sys.exit(command.report(as_json=as_json, timeout=timeout))


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module, as for `python -m`.")
@click.option("--quiet", is_flag=True, help="Print no report at the end.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...], as_module: bool, quiet: bool) -> None:
    """Run a script that asks for CUDA on the pjrt device, unmodified.

    What it asked of torch.cuda, what fell back to the CPU and how often programs were compiled is said on stderr at
    the end. Options for this command come before SCRIPT; all that follows SCRIPT is the script's.
    """
    from . import run as command

    command.run(script, arguments, as_module=as_module, quiet=quiet)


if __name__ == "__main__":
    main()
