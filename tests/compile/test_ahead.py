"""The option `sizes_ahead`: likely sizes are compiled before they come, counted, and never change what a program does."""

from __future__ import annotations

import logging
import pathlib
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

from torch_pjrt.compile.ahead import Ahead
from torch_pjrt.config import settings
from torch_pjrt.dispatch.install import forget_programs
from torch_pjrt.pjrt import compiler


@pytest.fixture(autouse=True)
def cold() -> Any:
    """Nothing is known of other tests' programs."""
    forget_programs()
    with settings.override(cache_dir="off"):
        yield


def noisy(x: torch.Tensor) -> torch.Tensor:
    return (torch.nn.functional.dropout(x, 0.5) * 2).softmax(-1).sum(0) + x.shape[0]


def total(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sum(0)


def outcome(function: Any, sizes: Any) -> list[torch.Tensor]:
    torch.manual_seed(5)
    out = [function(torch.ones(n, 3, device="pjrt")).cpu() for n in sizes]
    return [*out, torch.pjrt.get_rng_state()]


def waited() -> int:
    """Graphs that were captured when they were called."""
    stats = torch.pjrt.stats()
    return int(stats["captures"] - stats["captures_ahead"])


def test_a_growing_size_is_compiled_before_it_comes() -> None:
    sizes = range(4, 13)
    expected = outcome(noisy, sizes)
    forget_programs()
    compiled = torch.compile(noisy, backend="pjrt", dynamic=True, options={"sizes_ahead": 1})
    torch.pjrt.reset_stats()
    found = outcome(compiled, sizes)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    stats = torch.pjrt.stats()
    assert waited() == 3
    assert (stats["captures_ahead"], stats["captures_ahead_used"], stats["compiles_ahead"]) == (7, 6, 7)
    text = torch.pjrt.explain_recompiles()
    assert "(7 of them ahead, 6 of which were called)" in text
    assert "in noisy ahead: x has size [13, 3]" in text


def test_it_is_off_by_default() -> None:
    outcome(torch.compile(total, backend="pjrt", dynamic=True), range(4, 9))
    assert torch.pjrt.stats()["captures_ahead"] == 0 and waited() == 5


def test_several_sizes_ahead_and_steps_of_several() -> None:
    compiled = torch.compile(total, backend="pjrt", dynamic=True, options={"sizes_ahead": 3})
    outcome(compiled, (4, 8, 12))
    assert torch.pjrt.stats()["captures_ahead"] == 3
    outcome(compiled, (16, 20, 24))
    assert waited() == 3


def test_sizes_without_a_pattern_and_sizes_that_come_twice() -> None:
    compiled = torch.compile(total, backend="pjrt", dynamic=True, options={"sizes_ahead": 1})
    outcome(compiled, (4, 9, 6, 16, 5))
    assert torch.pjrt.stats()["captures_ahead"] == 0
    outcome(compiled, (20, 20, 22, 22, 24, 24, 26, 26))
    assert torch.pjrt.stats()["captures_ahead"] >= 2


def test_a_falling_size_stops_before_one() -> None:
    outcome(torch.compile(total, backend="pjrt", dynamic=True, options={"sizes_ahead": 4}), (8, 6, 4))
    assert torch.pjrt.stats()["captures_ahead"] == 1  # 2; then 0 is a graph of its own


def test_captures_stay_bounded() -> None:
    options = {"sizes_ahead": 5, "compiled_sizes": 2}
    compiled = torch.compile(total, backend="pjrt", dynamic=True, options=options)
    expected = outcome(total, range(4, 10))
    for a, b in zip(outcome(compiled, range(4, 10)), expected, strict=True):
        torch.testing.assert_close(a, b)
    stats = torch.pjrt.stats()
    assert stats["captures"] - stats["captures_dropped"] == 2
    assert waited() == 3


def test_backward_is_compiled_ahead_too() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu().sum() / x.shape[0]

    compiled = torch.compile(loss, backend="pjrt", dynamic=True, options={"sizes_ahead": 1})
    weight = torch.randn(4, 3)
    for n in range(5, 10):
        x = torch.randn(n, 4)
        w, v = weight.clone().requires_grad_(), weight.to("pjrt").requires_grad_()
        loss(x, w).backward()
        compiled(x.to("pjrt"), v).backward()
        assert w.grad is not None and v.grad is not None
        torch.testing.assert_close(v.grad.cpu(), w.grad, rtol=1e-5, atol=1e-5)
    assert waited() == 6 and torch.pjrt.stats()["captures_ahead_used"] == 4


def test_a_compile_that_fails_ahead_is_logged_and_made_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compile_ = compiler._compile

    def fails_ahead(*args: Any) -> Any:
        if threading.current_thread().name.startswith("torch-pjrt-ahead"):
            raise ValueError("no compiler here")
        return compile_(*args)

    monkeypatch.setattr(compiler, "_compile", fails_ahead)
    monkeypatch.setattr(logging.getLogger("torch_pjrt"), "propagate", True)
    compiled = torch.compile(total, backend="pjrt", dynamic=True, options={"sizes_ahead": 1})
    expected = outcome(total, range(4, 8))
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for a, b in zip(outcome(compiled, range(4, 8)), expected, strict=True):
            torch.testing.assert_close(a, b)
    assert "no compiler here" in caplog.text


def test_a_capture_that_fails_ahead_is_logged_and_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    """The table has 7 rows: size 8, which never comes, cannot be captured."""
    table = torch.randn(7, 3, device="pjrt")
    compiled = torch.compile(lambda x: x + table[: x.shape[0]], backend="pjrt", options={"sizes_ahead": 2})
    with caplog.at_level(logging.WARNING, "torch_pjrt"):
        for n in range(3, 8):
            x = torch.zeros(n, 3, device="pjrt")
            torch._dynamo.mark_dynamic(x, 0, min=2, max=7)
            assert torch.equal(compiled(x).cpu(), table[:n].cpu())


def test_compiles_ahead_are_left_out_where_compiles_are_forbidden() -> None:
    compiled = torch.compile(total, backend="pjrt", dynamic=True, options={"sizes_ahead": 1})
    outcome(compiled, (4, 5, 6))
    before = torch.pjrt.stats()["compiles"]
    x = torch.ones(7, 3, device="pjrt")
    with torch.pjrt.fail_on(recompile=True):
        compiled(x)
    assert torch.pjrt.stats()["compiles"] <= before + 1  # that of x


def test_threads_that_grow_side_by_side() -> None:
    compiled = torch.compile(lambda x: x.cumsum(0), backend="pjrt", dynamic=True, options={"sizes_ahead": 1})
    compiled(torch.ones(3, device="pjrt"))
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in range(first, first + 5):
            if compiled(torch.ones(n, device="pjrt")).cpu().tolist() != list(range(1, n + 1)):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in (10, 40, 70)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_program_ends_while_something_compiles(tmp_path: pathlib.Path) -> None:
    script = """
import torch
def deep(x):
    for _ in range(8):
        x = (x @ x.mT @ x).sin()
    return x.sum()
compiled = torch.compile(deep, backend="pjrt", dynamic=True, options={"sizes_ahead": 6, "share_layers": False})
with torch.no_grad():
    for n in (4, 5, 6):
        compiled(torch.ones(n, 3, device="pjrt"))
stats = torch.pjrt.stats()
print(stats["captures_ahead"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["6"] and "Traceback" not in done.stderr


def test_guesses_need_every_int_to_grow_evenly() -> None:
    ahead = Ahead(2)
    found = []
    for n in (4, 5, 6, 7):  # n // 2 does not grow evenly
        found = list(ahead.guesses(n, [n, n // 2, torch.empty(n, n * 3, device="pjrt")]))
    assert found == []
    ahead = Ahead(2)
    for n in (4, 6, 8):
        found = list(ahead.guesses(n, [n, n // 2, torch.empty(2, n, 3, device="pjrt"), None, "text"]))
    assert [g[:2] for g in found] == [[10, 5], [12, 6]]
    assert found[1][2].shape == (2, 12, 3) and found[1][2].stride() == (36, 3, 1) and found[1][3:] == [None, "text"]
