"""`python -m conformance.models`: runs known models on the device and writes docs/models.md from docs/data/models.json.

A model runs in a process of its own, so that a crash costs one row; results are kept after each, so that a run can be
stopped and resumed. --failed runs again what did not pass, --again everything named.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import click

from conformance.models.children import in_child

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "data" / "models.json"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--failed", is_flag=True, help="Run again the models that did not pass.")
@click.option("--again", is_flag=True, help="Run again what has a result.")
@click.option("--limit", default=900, show_default=True, help="Seconds for one model.")
@click.option("--page", "page_only", is_flag=True, help="Only write the page.")
def main(names: tuple[str, ...], failed: bool, again: bool, limit: int, page_only: bool) -> None:
    """Run NAMES (parts of names, in this order; all by default) and write docs/models.md."""
    from conformance.models.page import passed, write

    for name in () if page_only else _chosen(names):
        known = _read().get(name)
        if known is not None and not again and not (failed and not passed(known)):
            continue
        facts = in_child(name, limit)
        _keep(name, facts)
        print(f"{name}: {'pass' if passed(facts) else 'FAIL'}", flush=True)
    write(_read())


def _chosen(parts: tuple[str, ...]) -> list[str]:
    from conformance.models.cases import NAMES

    return list(dict.fromkeys(name for part in parts or ("",) for name in NAMES if part in name))


def _read() -> dict[str, Any]:
    return dict(json.loads(DATA.read_text())) if DATA.exists() else {}


def _keep(name: str, facts: dict[str, Any]) -> None:
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps({**_read(), name: facts}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
