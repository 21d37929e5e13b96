"""Threads that serve or train side by side: the same values as alone, and the same programs whatever the others do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from torch_pjrt.errors import PjrtError

pytestmark = pytest.mark.usefixtures("fresh")


class Baton:
    """Lets two threads go on one at a time, in a given order, so that how they interleave is the test's choice."""

    def __init__(self, order: list[int]):
        self.order, self.moved = iter(order), threading.Condition()
        self.turn, self.holder, self.ended = next(self.order), -1, [False, False]

    def wait(self, me: int) -> None:
        """End this thread's turn and return at its next; when the order has run out, or the other has ended, at once."""
        with self.moved:
            self._pass_on(me)
            assert self.moved.wait_for(lambda: self.holder < 0 and self._may_go(me), timeout=300)
            self.holder = me

    def end(self, me: int) -> None:
        """This thread needs no more turns."""
        with self.moved:
            self.ended[me] = True
            self._pass_on(me)

    def _may_go(self, me: int) -> bool:
        return self.turn in (me, -1) or self.ended[self.turn]

    def _pass_on(self, me: int) -> None:
        if self.holder == me:
            self.turn, self.holder = next(self.order, -1), -1
        self.moved.notify_all()


def side_by_side(work: Callable[[int, Callable[[], None]], Any], order: list[int]) -> list[Any]:
    """work(thread, pause) in two threads that take turns at each pause; what each returns, or what it raised."""
    baton = Baton(order)
    results: list[Any] = [None, None]

    def run(me: int) -> None:
        try:
            results[me] = work(me, lambda: baton.wait(me))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            results[me] = error
        finally:
            baton.end(me)

    threads = [threading.Thread(target=run, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


ORDERS = [[0, 1] * 12, [0, 0, 1, 1, 1, 0] * 4, [1, 0, 0, 0, 0, 1] * 4, [0] * 9 + [1] * 9, [1, 1, 0] * 8]


def _serve(models: list[nn.Module]) -> Callable[[int, Callable[[], None]], Any]:
    def work(me: int, pause: Callable[[], None]) -> Any:
        x = torch.full((2 + me, 8), 0.5 + me).to("pjrt")
        with torch.no_grad():
            for layer in models[me]:  # type: ignore[attr-defined]
                pause()
                x = layer(x)
            pause()
            return x.sum(1).cpu()

    return work


def _networks() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8)) for _ in (0, 1)]


def test_serving_compiles_nothing_new_whatever_the_order() -> None:
    models = _networks()
    want = [m(torch.full((2 + i, 8), 0.5 + i)).sum(1) for i, m in enumerate(models)]
    placed = [m.to("pjrt") for m in models]
    torch.pjrt.synchronize()
    for count, order in enumerate(ORDERS):
        got = side_by_side(_serve(placed), order)
        for mine, expected in zip(got, want, strict=True):
            torch.testing.assert_close(mine, expected)
        if count == 0:
            torch.pjrt.reset_stats()
    assert torch.pjrt.stats()["compiles"] == 0


def _train(models: list[nn.Module]) -> Callable[[int, Callable[[], None]], Any]:
    def work(me: int, pause: Callable[[], None]) -> Any:
        optimizer = torch.optim.SGD(models[me].parameters(), lr=0.1, momentum=0.9)
        losses = []
        for step in range(3):
            x = torch.full((4 + me, 8), 0.25 * (step + 1)).to("pjrt")
            pause()
            loss = models[me](x).square().mean()
            pause()
            loss.backward()
            pause()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    return work


def test_training_compiles_nothing_new_whatever_the_order() -> None:
    def alone() -> list[list[float]]:
        models = [m.to("pjrt") for m in _networks()]
        torch.pjrt.synchronize()
        return [_train(models)(me, lambda: None) for me in (0, 1)]

    want = alone()
    torch.pjrt.reset_stats()
    for order in ORDERS:
        models = [m.to("pjrt") for m in _networks()]
        torch.pjrt.synchronize()
        assert side_by_side(_train(models), order) == want
    assert torch.pjrt.stats()["compiles"] == 0


def test_a_value_of_another_thread_is_computed_for_whoever_reads_it() -> None:
    made: list[torch.Tensor] = []

    def work(me: int, pause: Callable[[], None]) -> Any:
        pause()
        if me == 0:
            made.append(torch.arange(4.0, device="pjrt") * 2)  # recorded, not run, when the other thread reads it
            pause()
            pause()
            return made[0].tolist()
        y = torch.ones(3, device="pjrt") + 1
        pause()
        return [(made[0] + 1).tolist(), made[0].tolist(), y.tolist()]

    got = side_by_side(work, [0, 1, 0, 1, 0])
    assert got == [[0, 2, 4, 6], [[1, 3, 5, 7], [0, 2, 4, 6], [2, 2, 2]]]


def test_what_a_finished_thread_recorded_is_not_lost() -> None:
    made: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: made.append(torch.ones(3, device="pjrt").cumsum(0)))
    thread.start()
    thread.join()
    other = torch.zeros(2, device="pjrt") + 5
    assert other.tolist() == [5, 5]
    assert made[0].tolist() == [1, 2, 3]


def test_a_failed_program_fails_only_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_pjrt.dispatch import launch

    run = launch.run

    def failing(key: Any, plan: Any, arrays: Any, numbers: Any, lines: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and len(lines) == 2:
            raise PjrtError("the chip is on fire")
        return run(key, plan, arrays, numbers, lines)

    monkeypatch.setattr(launch, "run", failing)
    shared: list[torch.Tensor] = []

    def work(me: int, pause: Callable[[], None]) -> Any:
        pause()
        if me == 0:
            shared.append(torch.ones(3, device="pjrt") + 1)  # two steps
            pause()
            return shared[0].tolist()
        depends = shared[0] * 3
        apart = torch.full((2,), 7.0, device="pjrt").cumsum(0).exp().log()
        pause()
        pause()
        return [apart.tolist(), depends]

    first, second = side_by_side(work, [0, 1, 0, 1, 1])
    assert isinstance(first, PjrtError)
    assert second[0] == pytest.approx([7, 14])
    with pytest.raises(PjrtError, match="on fire"):
        second[1].tolist()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    torch.pjrt.synchronize()
