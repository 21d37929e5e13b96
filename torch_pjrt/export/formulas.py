"""Formulas of sizes: what an int or a float of a recorded step is, in terms of the sizes that vary.

A formula is found from values at a few samples and has to be exact at all of them: a constant, a + c m, a sum of two such
terms, a product of sizes, a floor division as after strides, the smaller or larger of two. Used by export/sizes.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torch_pjrt.pjrt.jax_compat import larger, smaller

Expression = Any  # an int, or a size of jax.export.symbolic_shape
Known = tuple[np.ndarray[Any, Any], Expression]
_DIVISORS = (2, 4, 8, 16, 32, 3, 5, 6, 7, 14)


class NoFormula(Exception):
    """A value that differs between sizes in no way that is known."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A float that depends on a size: start + factor * size ** power."""

    factor: float
    size: Expression
    power: float
    start: float = 0.0


class Formulas:
    """Finds formulas. dims: per dim its values at the samples and JAX's name for it."""

    def __init__(self, dims: Sequence[tuple[tuple[int, ...], Expression]]):
        self.num_samples = len(dims[0][0])
        self.known: dict[tuple[int, ...], Expression] = {}
        self.terms: list[Known] = []
        for degree in (1, 2, 3):
            for factors in itertools.combinations_with_replacement(dims, degree):
                values = np.prod([np.array(v, object) for v, _ in factors], axis=0)
                self.terms.append((values, math.prod(e for _, e in factors)))
        self.single = self.terms[: len(dims)]
        self.quotients: list[Known] = []  # sizes after strided windows and of diagonals, as they were found

    def of(self, values: tuple[int, ...]) -> Expression:
        """The formula of an int with these values at the samples. Raises NoFormula."""
        if all(v == values[0] for v in values):
            return values[0]
        found = self.known.get(values)
        if found is None:
            found = self.known[values] = self._search(values)
        return found

    def _search(self, values: tuple[int, ...]) -> Expression:
        pairs = itertools.combinations(self.terms, 2)
        for terms in (*((t,) for t in self.terms), self.single, *pairs):
            found = self._linear(values, list(terms))
            if found is not None:
                return found
        found = self._multiplied(values) or self._divided(values) or self._extreme(values)
        if found is None:
            raise NoFormula(f"{list(values)}")
        return found

    def _multiplied(self, values: tuple[int, ...]) -> Expression | None:
        """A constant plus a multiple of a product with quotients that are known, as strides after strided windows are."""
        atoms = [*self.single, *self.quotients]
        for degree in (1, 2, 3):
            for factors in itertools.combinations_with_replacement(atoms, degree):
                product = np.prod([v for v, _ in factors], axis=0)
                found = self._linear(values, [(product, math.prod(e for _, e in factors))])
                if found is not None:
                    return found
        return None

    def _extreme(self, values: tuple[int, ...]) -> Expression | None:
        """The smaller or larger of two sizes, each plus a constant, or of one and a constant: sizes of diagonals."""
        given = np.array(values, object)
        atoms = [*self.single, *self.quotients, (np.zeros(len(values), object), 0)]
        for choose, bound, among in ((min, max, smaller), (max, min, larger)):
            for (a, x), (b, y) in itertools.combinations(atoms, 2):
                i, j = bound(given - a), bound(given - b)
                hits = [sum(given == each) for each in (a + i, b + j)]
                if min(hits) >= 2 and list(map(choose, a + i, b + j)) == list(values):
                    found = among(x + i, y + j)
                    self.quotients.append((given, found))
                    return found
        return None

    def _linear(self, values: tuple[int, ...], terms: list[Any]) -> Expression | None:
        """a + the sum of c * term with ints a and c, exact at every sample."""
        columns = np.array([[1] * len(values), *(t for t, _ in terms)], dtype=np.float64).T
        solution, _, rank, _ = np.linalg.lstsq(columns, np.array(values, np.float64), rcond=None)
        if rank < columns.shape[1] or not np.all(np.isfinite(solution)):
            return None
        start, *factors = (round(x) for x in solution)
        for i, value in enumerate(values):
            if start + sum(c * int(t[i]) for c, (t, _) in zip(factors, terms, strict=True)) != value:
                return None
        return start + sum(c * e for c, (_, e) in zip(factors, terms, strict=True))

    def _divided(self, values: tuple[int, ...]) -> Expression | None:
        """(term + a) // d, times or plus a constant: sizes after strided windows."""
        for floor, quotient in self._floors():
            for times, factor in ((1, 1), *self.single):
                found = self._linear(values, [(floor * times, quotient * factor)])
                if found is not None:
                    self.quotients.append((np.array(values, object), found))
                    return found
        return None

    def _floors(self) -> Iterator[Known]:
        """Quotients that differ between samples; at last those of sizes that are scaled by 3/2 or 3/4."""
        atoms = [*self.single, *self.quotients]
        ratios = [*((1, d) for d in _DIVISORS), (3, 2), (3, 4)]
        for times, divisor in ratios:
            for term, expression in atoms:
                for shift in range(-divisor + 1, divisor):
                    floor = (times * term + shift) // divisor
                    if len(set(floor)) > 1:
                        yield floor, (times * expression + shift) // divisor

    def number(self, values: tuple[Any, ...]) -> Any:
        """A 0-d operand: an int's formula, a float times or divided by one, a seed's offset, or the one value it always has."""
        first = values[0]
        if all(v == first or (v != v and first != first) for v in values):
            return first
        if isinstance(first, tuple):
            return (first[0], self.of(tuple(v[1] for v in values)))
        if isinstance(first, int):
            return self.of(values)
        if isinstance(first, float):
            return self._scaled(np.array(values))
        raise NoFormula(f"{list(values)}")

    def _scaled(self, values: np.ndarray[Any, Any]) -> Scaled:
        """A float that is in proportion to a power of a term, or a constant more."""
        for starts, ((term, expression), power) in itertools.product(
            (False, True), itertools.product(self.terms, (1.0, -1.0, 0.5, -0.5))
        ):
            base = term.astype(np.float64) ** power
            low, high = base.argmin(), base.argmax()
            factor = (values[high] - values[low]) / (base[high] - base[low]) if starts else values[high] / base[high]
            start = values[high] - factor * base[high] if starts else 0.0
            if np.all(np.abs(start + factor * base - values) <= 1e-12 * np.abs(values).max()):
                return Scaled(float(factor), expression, power, float(start))
        raise NoFormula(f"{list(values)}")
