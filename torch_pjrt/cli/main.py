"""The command `torch-pjrt` and its subcommands. Each is imported when it is asked for, so `--help` needs no torch."""

from __future__ import annotations

__all__ = ["main"]

import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from torch_pjrt._version import __version__
from torch_pjrt.cli.completion import SHELLS, rule_ids, target_names
from torch_pjrt.cli.plan import plan


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torch-pjrt")
def main() -> None:
    """PyTorch on every chip that has a PJRT plugin.

    \b
        torch-pjrt doctor                     what works here, and what is missing
        torch-pjrt check src                  what ties a program to one chip
        torch-pjrt port src                   how to untie it
        torch-pjrt plan --model llama3-8b     which chip, how many, at what cost
        torch-pjrt run train.py --epochs 3    a CUDA script on another chip, unmodified

    `torch-pjrt COMMAND --help` has examples of each. Exit codes: 0 all is well, 1 something was found or does not work,
    2 a wrong command line, 3 an error of this program.
    """


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait for each platform.")
def doctor(as_json: bool, timeout: float) -> None:
    """Say what is installed, which chips are found, what is missing, and the command that installs it.

    Exits with 0 when the device works here, 1 when it does not, 2 for a wrong command line, 3 for an error of this
    program.

    \b
        torch-pjrt doctor
        torch-pjrt doctor --json | jq .ok
        torch-pjrt doctor --timeout 5
    """
    from . import doctor as command

    sys.exit(_internal_errors(command.report, as_json=as_json, timeout=timeout))


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module, as for `python -m`.")
@click.option("--quiet", is_flag=True, help="Print no report at the end.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write the report to a JSON file.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...], as_module: bool, quiet: bool, report: str | None) -> None:
    """Run a script that asks for CUDA on the pjrt device, unmodified.

    What it asked of torch.cuda, what fell back to the CPU and how often programs were compiled is said on stderr at
    the end. Options for this command come before SCRIPT; all that follows SCRIPT is the script's. Exits as the script
    does: with 1 when it raises, with 2 when there is no such script.

    \b
        torch-pjrt run train.py --epochs 3
        torch-pjrt run -m package.train --epochs 3
        torch-pjrt run --quiet --report run.json train.py
    """
    from . import run as command

    command.run(script, arguments, as_module=as_module, quiet=quiet, report=report)


@main.command()
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path())
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "sarif", "html"]), default="text", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Write the report to a file.")
@click.option(
    "--severity",
    "least",
    type=click.Choice(["breaks", "silently-changes", "slows", "style"]),
    default="style",
    show_default=True,
    help="Report this severity and worse ones.",
)
@click.option(
    "--select",
    default="",
    metavar="IDS",
    shell_complete=rule_ids,
    help="Only rules whose ids begin so, as in PJ1,PJ203.",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out paths or names that match (repeatable).")
@click.option("--baseline", type=click.Path(dir_okay=False), help="Report only what is not in this file.")
@click.option(
    "--write-baseline", type=click.Path(dir_okay=False), help="Write what is found to a baseline, and exit 0."
)
@click.option(
    "--run", "command", metavar="CMD", help="Also run this program on the pjrt device and report what it did."
)
@click.option(
    "--explain",
    metavar="ID",
    shell_complete=rule_ids,
    help="Print what a rule is about, with examples, and check nothing.",
)
def check(
    paths: tuple[str, ...],
    as_json: bool,
    form: str,
    baseline: str,
    write_baseline: str,
    explain: str | None,
    **options: Any,
) -> None:
    """Find what ties a program to one chip: in files, folders, notebooks, requirements, or an installed package.

    Nothing is run or imported, except with --run. Exits with 0 without findings, 1 with, 2 for a wrong command line,
    3 for an error of this program. `# pjrt: ignore[PJ101]` on a line hides a finding.

    \b
        torch-pjrt check train.py
        torch-pjrt check src requirements.txt --severity silently-changes
        torch-pjrt check . --format sarif -o check.sarif
        torch-pjrt check train.py --run "train.py --epochs 1"
        torch-pjrt check --explain PJ203
    """
    from . import check as command

    if explain is not None:
        sys.exit(command.explain(explain))
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    form = "json" if as_json else form
    sys.exit(_internal_errors(command.check, paths, form=form, known=baseline, new_baseline=write_baseline, **options))


@main.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option("--write", is_flag=True, help="Change the files; without it only the difference is shown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: changes and what is left to do.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out paths or names that match (repeatable).")
@click.option("--quiet", is_flag=True, help="Do not list what is left to do.")
def port(paths: tuple[str, ...], **options: Any) -> None:
    """Rewrite a CUDA program to device-agnostic PyTorch, which runs on CUDA, the CPU and other chips.

    Shows a difference; --write makes it. Only files below PATH are read and changed. What a person must decide is
    listed as findings of `torch-pjrt check`. Exits with 0 when nothing is left to do, 1 when something is, 2 for a
    wrong command line or a missing extra, 3 for an error of this program.

    \b
        torch-pjrt port train.py
        torch-pjrt port src --write
    """
    from . import port as command

    sys.exit(_internal_errors(command.port, paths, **options))


def _internal_errors(function: Callable[..., int], *args: Any, **kwargs: Any) -> int:
    """Call it; an error that is not the user's is told apart by exit code 3."""
    try:
        return function(*args, **kwargs)
    except (click.ClickException, BrokenPipeError):
        raise
    except Exception as error:
        traceback.print_exc()
        click.echo(f"torch-pjrt: an error of this program, not of yours: {type(error).__name__}: {error}", err=True)
        return 3


@main.command(name="compile")
@click.option("--model", help="module:function that returns (model, args) or (model, args, kwargs).")
@click.option("--config", type=click.Path(exists=True), help="config.json of a Hugging Face model, or its folder.")
@click.option("--exported", type=click.Path(exists=True), help="File of torch.export.save.")
@click.option(
    "--target",
    "names",
    multiple=True,
    default=("cpu",),
    show_default=True,
    shell_complete=target_names,
    help="A chip (repeatable); --list has the names.",
)
@click.option(
    "--mode",
    default="infer",
    show_default=True,
    help="infer; train: loss, backward, AdamW; decode: one token against a cache (of --length with --config).",
)
@click.option("--mesh", help="Several devices, as data=2,model=2: the batch along data, weights along model.")
@click.option("--mesh-rules", type=click.Path(exists=True), help="TOML file that says which dims go along which axis.")
@click.option(
    "--loops/--no-loops", default=True, show_default=True, help="Let TPU and GPU compilers see equal layers as a loop."
)
@click.option(
    "--effort",
    type=click.FloatRange(-1, 1),
    default=0.0,
    show_default=True,
    help="How hard the compiler tries to make the program fast: -1 compiles soonest, 0 is its own choice.",
)
@click.option(
    "--isolated",
    is_flag=True,
    help="Try the compiler in a process of its own first: for a program over which it ends this one without a word.",
)
@click.option("--batch", default=1, show_default=True, help="With --config: batch size.")
@click.option("--length", default=128, show_default=True, help="With --config: tokens.")
@click.option("--dtype", help="With --config: dtype of the weights, as bfloat16.")
@click.option("--precision", help="highest, high or medium, as torch.set_float32_matmul_precision has it.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of text.")
@click.option("--save-executable", type=click.Path(), help="Write the executable of the (one) target.")
@click.option("--save-stablehlo", type=click.Path(), help="Write the program as StableHLO text.")
@click.option("--list", "as_list", is_flag=True, help="List the targets, and what each lacks here.")
def compile_command(**options: object) -> None:
    """Compile a model for a chip that need not be here, and say whether it fits and what it costs.

    Nothing is run and no weights are loaded. For Trainium the program is linted. Exits with 0 when every target is fine,
    1 when one is not, 2 for a wrong command line, 3 for an error of this program.

    \b
        torch-pjrt compile --list
        torch-pjrt compile --model my.package:make --target tpu-v6e --target h100 --target trn2
        torch-pjrt compile --config config.json --batch 8 --length 2048 --dtype bfloat16 --target tpu-v6e
        torch-pjrt compile --model my.package:make --mode train --json
    """
    from . import compile as command

    sys.exit(_internal_errors(command.run, **options))


@main.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete the commands, options, files and names of torch-pjrt.

    \b
        torch-pjrt completion bash > ~/.local/share/bash-completion/completions/torch-pjrt
        torch-pjrt completion zsh > ~/.zfunc/_torch-pjrt      # a folder of $fpath
        torch-pjrt completion fish > ~/.config/fish/completions/torch-pjrt.fish
    """
    from . import completion as command

    click.echo(command.script(main, shell))


main.add_command(plan)

if __name__ == "__main__":
    main()
