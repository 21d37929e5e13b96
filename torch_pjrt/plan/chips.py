"""Chips and what is known of them, each figure with its source and date; and prices, packaged or the user's.

Owns the reading and checking of chips/*.toml, sources.toml and price files. A figure that no source gives is unknown: it is
None here, and never filled in.
"""

from __future__ import annotations

import difflib
import functools
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_pjrt.plan.workload import PlanError

FOLDER = Path(__file__).parent
OWNERSHIPS = ("on-demand", "spot", "reserved", "owned")
_UNITS = {
    "TFLOP/s": 1e12,
    "TOP/s": 1e12,
    "GB": 1e9,
    "GiB": 2.0**30,
    "GB/s": 1e9,
    "GiB/s": 2.0**30,
    "TB/s": 1e12,
    "W": 1.0,
    "chips": 1.0,
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure: in base units (operations, bytes, watts), as the source has it, and which source of which date."""

    value: float | None
    text: str
    source: str = ""
    date: str = ""
    note: str = ""
    direction: str = ""

    @property
    def one_way(self) -> float | None:
        """For a link: bytes per second in one direction; a figure that does not say is taken as both summed."""
        if self.value is None:
            return None
        return self.value if self.direction == "one" else self.value / 2


UNKNOWN = Fact(None, "unknown")


@dataclass(frozen=True, slots=True)
class Chip:
    """One kind of chip. target: its name for `torch-pjrt compile`, empty when there is none."""

    name: str
    title: str
    vendor: str
    kind: str
    target: str
    facts: dict[str, Fact] = field(default_factory=dict)

    def fact(self, name: str) -> Fact:
        """A figure; one without a value where nothing is known."""
        return self.facts.get(name, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for one chip and hour."""

    chip: str
    ownership: str
    per_hour: float
    provider: str = ""
    region: str = ""
    source: str = ""
    date: str = ""
    note: str = ""


@functools.cache
def chips() -> dict[str, Chip]:
    """All chips by name."""
    return {path.stem: _chip(path) for path in sorted((FOLDER / "chips").glob("*.toml"))}


@functools.cache
def sources() -> dict[str, dict[str, str]]:
    """What, address and date of each source."""
    return tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))


def _chip(path: Path) -> Chip:
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    facts = {name: _fact(row) for name, row in rows.items() if isinstance(row, dict)}
    return Chip(path.stem, rows["title"], rows["vendor"], rows["kind"], rows["target"], facts)


def _fact(row: dict[str, Any]) -> Fact:
    if row.get("unknown"):
        return Fact(None, "unknown", note=row.get("note", ""))
    text = f"{row['value']:g} {row['unit']}"
    value = row["value"] * _UNITS[row["unit"]]
    return Fact(value, text, row["source"], row["date"], row.get("note", ""), row.get("direction", ""))


def chosen(names: str | None, measured: dict[str, Chip] | None = None) -> list[Chip]:
    """The chips of a comma-separated list, or all. Raises PlanError with the nearest name.

    measured: machines that can be named beside the packaged chips (see calibration.py).
    """
    if not names or names == "all":
        return list(chips().values())
    known = {**chips(), **(measured or {})}
    found = []
    for name in (n.strip().lower() for n in names.split(",") if n.strip()):
        if name not in known:
            hint = "; it can be named after a run with --measure on one" if name == "cpu" else _nearest(name, known)
            raise PlanError(f"there is no chip {name!r}{hint}; they are {', '.join(known)}")
        found.append(known[name])
    if not found:
        raise PlanError("--chips names no chip")
    return list({c.name: c for c in found}.values())


def _nearest(name: str, names: Any) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def prices(path: str | Path | None = None) -> list[Price]:
    """The packaged list, or that of a file (TOML or JSON, a list of tables called `price`). Raises PlanError."""
    where = Path(path) if path else FOLDER / "prices.toml"
    try:
        text = where.read_text(encoding="utf-8")
        rows = json.loads(text) if where.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot read the price file {where}: {error}") from error
    unknown = sorted(set(rows) - {"price"}) if isinstance(rows, dict) else []
    if not isinstance(rows, dict) or unknown or not isinstance(rows.get("price"), list):
        what = f" It has {', '.join(map(repr, unknown))} at the top." if unknown else ""
        raise PlanError(f"{where} must hold a list of tables, each begun by [[price]].{what}")
    return [_price(row, _Place(where, text, i)) for i, row in enumerate(rows["price"], 1)]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a price stands in its file."""

    path: Path
    text: str
    number: int

    def at(self, key: str = "") -> str:
        """The file and the line of a key of this price; in JSON, which price it is."""
        heads = [i for i, line in enumerate(self.text.splitlines(), 1) if line.replace(" ", "").startswith("[[price]]")]
        if self.path.suffix == ".json" or len(heads) < self.number:
            return f"{self.path}, price {self.number}"
        first = heads[self.number - 1]
        lines = self.text.splitlines()[first:]
        found = next((i for i, line in enumerate(lines, 1) if line.split("=")[0].strip().strip("\"'") == key), 0)
        return f"{self.path}, line {first + found}"


def _price(row: Any, place: _Place) -> Price:
    known = tuple(Price.__dataclass_fields__)
    if not isinstance(row, dict):
        raise PlanError(f"{place.at()}: not a table")
    for key in row:
        if key not in known:
            raise PlanError(
                f"{place.at(key)}: there is no key {key!r}{_nearest(key, known)}; they are {', '.join(known)}"
            )
    for key in ("chip", "per_hour"):
        if key not in row:
            raise PlanError(f"{place.at()}: {key} is missing")
    if row["chip"] not in chips():
        raise PlanError(f"{place.at('chip')}: there is no chip {row['chip']!r}{_nearest(str(row['chip']), chips())}")
    ownership = row.get("ownership", "on-demand")
    if ownership not in OWNERSHIPS:
        raise PlanError(
            f"{place.at('ownership')}: there is no ownership {ownership!r}{_nearest(str(ownership), OWNERSHIPS)}; "
            f"they are {', '.join(OWNERSHIPS)}"
        )
    value = row["per_hour"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise PlanError(f"{place.at('per_hour')}: per_hour must be a number of dollars, not {value!r}")
    text = {k: str(row.get(k, "")) for k in ("provider", "region", "source", "date", "note")}
    return Price(row["chip"], ownership, float(value), **text)


def price_of(chip: str, ownership: str, listed: list[Price]) -> Price | None:
    """The lowest price of the chip under that ownership."""
    found = [p for p in listed if p.chip == chip and p.ownership == ownership]
    return min(found, key=lambda p: p.per_hour) if found else None
