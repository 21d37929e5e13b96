"""The runner: `./dev conformance [--shard i/n] [--json PATH] [--fresh | --retry] [--test T] [--op O] [--dtype D] [--mode M]
[--every-sample]`.

Runs pytest in child processes of a few hundred nodes each, so that memory stays bounded and a crash costs one node, which is
then recorded as crashed. Results go to a journal as they come: a run that was stopped goes on where it was. Shards may run
side by side; `--only-report` adds up the journals of all of them.

A node runs all samples of its entry if there are not too many (`MANY` in nodes.py). With `--every-sample` it runs all of them
however many there are, and nodes that ran a choice before run again. The journal says `"whole": true` of a node that ran all.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

from conformance.conftest import FOLDER
from conformance.report import as_json, failures, forget_failures, latest, lines_of, note, table

HERE = pathlib.Path(__file__).resolve().parent
DONE = 5  # pytest's code for: nothing to run


def run_nodes(journal: pathlib.Path, arguments: list[str], chunk: int, suite: pathlib.Path = HERE) -> None:
    """Run what the journal lacks, `chunk` nodes per process, until nothing is left."""
    command = [sys.executable, "-m", "pytest", str(suite), "-q", "--no-header", "--durations=0", "--tb=short"]
    command += ["-p", "no:cacheprovider", f"--journal={journal}", f"--at-most={chunk}", *arguments]
    while True:
        before = len(lines_of(journal))
        code = subprocess.call(command, cwd=HERE.parent)
        if code == DONE:
            return
        if code in (2, 3, 4) or code == 130:
            sys.exit(code)
        if code not in (0, 1):
            _mark_crash(journal, code, before)


def _mark_crash(journal: pathlib.Path, code: int, before: int) -> None:
    """The node that had started last and not ended takes the blame; between two nodes, nobody does."""
    lines = lines_of(journal)
    if len(lines) == before:
        sys.exit(f"pytest ended with {code} before any node had started")
    if lines[-1]["state"] == "started":
        note(journal, node=lines[-1]["node"], state="crashed", text=f"the process ended with {code}")


def main() -> int:
    """Run what is left, print the table, and give 1 if anything failed."""
    parser = argparse.ArgumentParser(
        prog="dev conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--json", type=pathlib.Path, help="write results and counts here")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--retry", action="store_true", help="run again what failed, crashed or was never finished")
    parser.add_argument(
        "--docs", action="store_true", help="write what is proven to docs/data, and docs/ops.md from it"
    )
    parser.add_argument("--only-report", action="store_true", help="run nothing; report on every shard there is")
    parser.add_argument("--chunk", type=int, default=400, help="nodes per process")
    options, rest = parser.parse_known_args()
    FOLDER.mkdir(exist_ok=True)
    journal = FOLDER / f"results-{options.shard.replace('/', '-of-')}.jsonl"
    if options.fresh:
        journal.unlink(missing_ok=True)
    if options.retry:
        forget_failures(journal)
    if options.only_report:
        lines = {n: line for path in sorted(FOLDER.glob("results-*.jsonl")) for n, line in latest(path).items()}
    else:
        run_nodes(journal, [f"--shard={options.shard}", *rest], options.chunk)
        lines = latest(journal)
    print(table(lines))
    for line in failures(lines):
        print(line)
    if options.json:
        options.json.write_text(as_json(lines), encoding="utf-8")
    if options.docs:
        from conformance import proven
        from torch_pjrt.cli import docs

        print(f"wrote {proven.write(lines).name}")
        docs.write(HERE.parent / "docs")
    return 1 if failures(lines) else 0


if __name__ == "__main__":
    sys.exit(main())
