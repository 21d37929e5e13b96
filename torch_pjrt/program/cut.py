"""Where to cut a pending Program: repeated runs of steps become segments that share one executable.

Owns the search for repetition. It works on structural hashes (template and relative positions of operands), so a layer
and its fellows look alike; results never depend on where the cuts lie, only compile time and speed do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torch_pjrt.program.program import Template

Steps = Sequence[tuple[Template, tuple[int, ...]]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]

# A launch costs about as much as recording a few ops, and XLA compiles large programs in superlinear time. A pending
# Program of at most SMALL steps is not cut; blocks shorter than MIN_BLOCK are joined until they have about JOINED steps.
SMALL = 96
MIN_BLOCK = 8
JOINED = 24
MAX_BLOCK = 320
MIN_LANE = 6  # foreach steps on one tensor that are worth a launch of their own
SMALL_LANE = 1 << 16  # bytes of a tensor below which its steps cost less than a launch, and
JOINED_LANES = 4  # how many alike are then launched together (a fixed number, so that all depths share the executable)
# An operand counts as coming from inside a block when it was produced less than about a period ago. What lies further back
# (a backward reads its forward's activations) is at another distance in every layer, so it must not tell layers apart.
NEARS = (16, 32, 64, 128, 256, 512)


def groups_of(steps: Steps, num_inputs: int, uncut: int = SMALL) -> list[Sequence[int]]:
    """Groups of step numbers in running order; together they are all steps, and no group needs a later one. uncut: a Program
    of at most so many steps is one group."""
    if len(steps) <= uncut:
        return [range(len(steps))]
    producer = _producers(steps, num_inputs)
    groups: list[Sequence[int]] = []
    for stretch, lanes in _stretches(steps, producer):
        groups += lanes if lanes is not None else _blocks(steps, producer, stretch)
    return groups


def _blocks(steps: Steps, producer: list[int], order: list[int]) -> list[Sequence[int]]:
    """A stretch of steps cut at its repeated blocks."""
    if len(order) <= MIN_BLOCK:
        return [order]
    position = {s: i for i, s in enumerate(order)}
    hashes = {near: _hashes(steps, producer, order, position, near) for near in NEARS}
    crossing = _crossing(steps, producer, order, position)
    cuts = sorted({0, len(order), *_cuts(hashes, crossing, 0, len(order))})
    bounds = _capped(cuts)
    return [order[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def _stretches(steps: Steps, producer: list[int]) -> list[tuple[list[int], list[Sequence[int]] | None]]:
    """The steps in order: ordinary stretches, and runs of foreach steps taken apart tensor by tensor."""
    out: list[tuple[list[int], list[Sequence[int]] | None]] = []
    plain: list[int] = []
    s = 0
    while s < len(steps):
        end = s
        while end < len(steps) and steps[end][0].lane:
            end += 1
        lanes = _components(steps, producer, s, end) if end > s else []
        if lanes and len(lanes[0]) >= MIN_LANE:
            lanes = _joined(steps, lanes)
            if plain:
                out.append((plain, None))
                plain = []
            out.append(([], lanes))
        else:
            plain += range(s, max(end, s + 1))
        s = max(end, s + 1)
    if plain:
        out.append((plain, None))
    return out


def _producers(steps: Steps, num_inputs: int) -> list[int]:
    """For every value: the step that makes it, -1 for inputs."""
    producer = [-1] * num_inputs
    for s, (template, _) in enumerate(steps):
        producer += [s] * len(template.outs)
    return producer


def _components(steps: Steps, producer: list[int], start: int, end: int) -> list[Sequence[int]]:
    """Steps start..end-1 by dependence: each group is connected, in order of first appearance."""
    parent = list(range(end - start))

    def root(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for s in range(start, end):
        for v in steps[s][1]:
            if producer[v] >= start:
                a, b = root(producer[v] - start), root(s - start)
                parent[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = {}
    for s in range(start, end):
        members.setdefault(root(s - start), []).append(s)
    return list(members.values())


def _joined(steps: Steps, lanes: list[Sequence[int]]) -> list[Sequence[int]]:
    """The lanes, those of small tensors with the same steps joined by JOINED_LANES as far as that goes."""
    alike: dict[tuple[int, ...], list[Sequence[int]]] = {}
    out: list[Sequence[int]] = []
    for lane in lanes:
        if max(steps[s][0].out_bytes for s in lane) > SMALL_LANE:
            out.append(lane)
            continue
        waiting = alike.setdefault(tuple(steps[s][0].id for s in lane), [])
        waiting.append(lane)
        if len(waiting) == JOINED_LANES:
            out.append([s for each in waiting for s in each])
            waiting.clear()
    return out + [lane for waiting in alike.values() for lane in waiting]


def _hashes(steps: Steps, producer: list[int], order: list[int], position: dict[int, int], near: int) -> Ints:
    """A structural hash per position of the order: the template, and where its near operands come from."""
    first: dict[int, int] = {}
    for v, s in enumerate(producer):
        first.setdefault(s, v)
    out = np.empty(len(order), np.int64)
    for i, s in enumerate(order):
        template, operands = steps[s]
        refs = []
        for v in operands:
            back = i - position.get(producer[v], -near - 1)
            refs.append((back, v - first[producer[v]]) if 0 < back <= near else None)
        out[i] = hash((template.id, tuple(refs)))
    return out


def _crossing(steps: Steps, producer: list[int], order: list[int], position: dict[int, int]) -> Ints:
    """For every position: how many near values a cut in front of it would separate from a reader."""
    delta = np.zeros(len(order) + 1, np.int64)
    last: dict[int, int] = {}
    for i, s in enumerate(order):
        for v in steps[s][1]:
            if producer[v] in position and i - position[producer[v]] <= NEARS[2]:
                last[v] = i
    for v, i in last.items():
        delta[position[producer[v]] + 1] += 1
        delta[i + 1] -= 1
    return np.cumsum(delta)[: len(order)]


def _cuts(hashes: dict[int, Ints], crossing: Ints, start: int, end: int) -> list[int]:
    """Cut positions inside start..end: at the best repeated run, then in what is left on both sides."""
    found = _best_run(hashes, start, end)
    if found is None:
        return []
    begin, period, length = found
    phase = int(np.argmin(crossing[begin : begin + period]))
    first = begin + phase
    blocks = (begin + length - first) // period
    per_cut = max(1, round(JOINED / period)) if period < MIN_BLOCK else 1
    cuts = list(range(first, first + blocks * period + 1, period * per_cut))
    return [*_cuts(hashes, crossing, start, cuts[0]), *cuts, *_cuts(hashes, crossing, cuts[-1], end)]


def _best_run(hashes: dict[int, Ints], start: int, end: int) -> tuple[int, int, int] | None:
    """The stretch with a period that saves most: (begin, period, length), at least two repeats and two blocks long."""
    best: tuple[int, int, int] | None = None
    gain = MIN_BLOCK // 2
    for period in range(1, min((end - start) // 2, MAX_BLOCK) + 1):
        part = hashes[next(near for near in NEARS if near >= period)][start:end]
        same = part[:-period] == part[period:]
        if not same.any():
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
        lengths = edges[1::2] - edges[0::2]
        longest = int(np.argmax(lengths))
        run = int(lengths[longest])
        if run < period or run + period < max(2 * MIN_BLOCK, 2 * JOINED if period < MIN_BLOCK else 0):
            continue
        if run > gain * 1.05:
            gain = run
            best = (start + int(edges[2 * longest]), period, run + period)
    return best


def _capped(cuts: list[int]) -> list[int]:
    """The cuts, and further ones so that no block is longer than MAX_BLOCK; short neighbours are not joined."""
    out = [cuts[0]]
    for cut in cuts[1:]:
        while cut - out[-1] > MAX_BLOCK:
            out.append(out[-1] + MAX_BLOCK)
        out.append(cut)
    return out
