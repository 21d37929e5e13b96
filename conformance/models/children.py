"""A process for each model, so that a crash costs one row of the table; all are forked from one that has done the imports."""

from __future__ import annotations

import multiprocessing
from typing import Any


def in_child(name: str, limit: int) -> dict[str, Any]:
    """A model's facts, found in a process forked from one that has only imported what all need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["conformance.models.preload"])
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=answer, args=(name, theirs))
    child.start()
    theirs.close()
    try:
        if not ours.poll(limit):
            return {"crash": f"not done in {limit} s"}
        return dict(ours.recv())
    except EOFError:
        child.join()
        return {"crash": f"exit code {child.exitcode}"}
    finally:
        child.kill()
        child.join()


def answer(name: str, connection: Any) -> None:
    """In the child: send a model's facts."""
    from conformance.models.judge import examine

    try:
        connection.send(examine(name))
    except Exception as error:  # noqa: BLE001 - whatever a library raises is a row of the table
        connection.send({"crash": f"{type(error).__name__}: {error}"[:500]})
