"""What training may keep for the backward pass, and what it computes again instead: none, selective, full.

none: all that the backward pass reads is kept. selective: results of products and of attention are kept; what lies between
them, and attention's scores, is computed again. full: only what enters each block is kept, and each block's forward pass
runs again. Read from the program: what is made in the forward pass and read in the backward pass. What one block has is the
difference between the model and the same model with one block.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from torch_pjrt.plan.families import Subject
from torch_pjrt.plan.fusion import Group
from torch_pjrt.plan.work import Policy, Reading
from torch_pjrt.plan.workload import Workload


def of(whole: Reading, single: Reading | None, subject: Subject, workload: Workload) -> dict[str, Policy]:
    """The policies that the model can have, by name."""
    if workload.kind != "train":
        cached = subject.cache_bytes if workload.kind in ("prefill", "batch-infer") else 0
        return {"none": Policy(0.0, max(0.0, whole.peak - cached))}
    saved, products = whole.fused.saved(), whole.fused.saved(products_only=True)
    moving = max(0.0, whole.peak - saved)
    found = {"none": Policy(saved, moving)}
    if single is None:
        again = [g for g in whole.groups if _light(g)]
        found["selective"] = Policy(products, moving, _reruns(again))
        return found
    layers = subject.layers
    block = (saved - single.fused.saved()) / max(1, layers - 1)
    block_products = (products - single.fused.saved(products_only=True)) / max(1, layers - 1)
    entry = subject.stream * workload.compute_dtype.itemsize
    outside = max(0.0, saved - layers * block)
    of_blocks = _of_blocks(whole.groups, single.groups, layers)
    light = _reruns([g for g in of_blocks if _light(g)])
    found["selective"] = Policy(outside + layers * block_products, moving + block - block_products, light)
    found["full"] = Policy(outside + layers * entry, moving + block, _reruns(of_blocks))
    return found


def _light(g: Group) -> bool:
    """Not a product whose result is kept: elementwise work, reductions, and attention's products of scores."""
    return g.phase == "forward" and (not g.flops or g.inner)


def _key(g: Group) -> tuple[Any, ...]:
    return (g.name, g.phase, tuple(sorted(g.matmul.items())), g.vector, g.bytes)


def _of_blocks(whole: list[Group], single: list[Group], layers: int) -> list[Group]:
    """The forward kernels of all blocks: those that the model has more of than its one-block twin."""
    least = Counter(_key(g) for g in single)
    most = Counter(_key(g) for g in whole)
    first = {_key(g): g for g in whole if g.phase == "forward"}
    found = []
    for key, g in first.items():
        extra = most[key] - least[key]
        if extra > 0:
            found.append(_copy(g, extra * layers // max(1, layers - 1)))
    return found


def _reruns(groups: list[Group]) -> list[Group]:
    return [_copy(g, g.count) for g in groups]


def _copy(g: Group, count: int) -> Group:
    """A kernel that runs again in the backward pass."""
    return replace(g, phase="backward", matmul=dict(g.matmul), count=count, sharded_output=0.0)
