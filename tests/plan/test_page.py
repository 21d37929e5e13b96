"""The page of a plan in a browser: sorting, keys, small and dark screens, print, and that it needs no network."""

from __future__ import annotations

import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from torch_pjrt.plan import chips, compare, families, migration, page, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.workload import Workload

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A page with all of its parts."""
    load, assumed = Workload("train", 64, 64, recompute="auto", quantity=1e12), Assumptions()
    made = compare.plan(
        work.of(families.subject("tiny", load), load), list(chips.chips().values()), chips.prices(), assumed
    )
    compare.leave(made, "h100", migration.stated("30d", assumed))
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page.as_html(made), encoding="utf-8")
    return path


def test_every_part_is_there(written: pathlib.Path) -> None:
    text = written.read_text()
    assert not re.search(r'(src|href)="(?!#|data:)', text) and "@import" not in text and "url(" not in text
    parts = ("Cheapest", "Leaving H100 SXM", "Owned or rented", "Attention", "Cost against time", "Memory", "Roofline")
    for word in (*parts, "Assumptions", "Facts and sources", "light-dark(", "@media print"):
        assert word in text, word
    assert text.count("<table") == text.count("<caption") >= 5 and 'lang="en"' in text
    marks = set(re.findall(r'href="#([^"]+)"', text))
    assert marks and marks <= set(re.findall(r'id="([^"]+)"', text))  # every link inside the page leads somewhere


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, where it and playwright are installed."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def opened(browser: Any, path: pathlib.Path, **how: Any) -> tuple[Any, list[str]]:
    """The page, and what went wrong on it."""
    context = browser.new_context(**how)
    tab, troubles = context.new_page(), []
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on(
        "request", lambda request: troubles.append(request.url) if request.url[:5] not in ("file:", "data:") else None
    )
    tab.goto(path.as_uri())
    return tab, troubles


def column(tab: Any, head: str) -> list[str]:
    """The values of a column of the main table, as they stand."""
    return tab.evaluate(
        """(head) => { const row = document.querySelector('#chips thead tr');
        const at = [...row.children].findIndex((x) => x.textContent === head);
        return [...document.querySelectorAll('#chips tbody tr')].map((x) => x.children[at].dataset.value
          ?? x.children[at].textContent) }""",
        head,
    )


def test_sorting_by_mouse_and_by_key(browser: Any, written: pathlib.Path) -> None:
    tab, troubles = opened(browser, written)
    costs = [float(v) for v in column(tab, "$ for 1M tokens") if v]
    assert costs == sorted(costs) and len(costs) > 12  # cheapest first, to begin with
    head = tab.locator("#chips th", has_text="step")
    head.locator("button").click()
    steps = column(tab, "step")
    known = [float(v) for v in steps if v]
    assert known == sorted(known) and len(known) > 12 and head.get_attribute("aria-sort") == "ascending"
    assert tab.locator("#chips th[aria-sort]").count() == 1
    head.locator("button").press("Enter")
    known = [float(v) for v in column(tab, "step") if v]
    assert known == sorted(known, reverse=True) and head.get_attribute("aria-sort") == "descending"
    tab.locator("#chips th", has_text="chip").first.locator("button").press("Space")
    names = column(tab, "chip")
    assert names == sorted(names)
    assert not troubles


def test_a_roofline_for_each_chip(browser: Any, written: pathlib.Path) -> None:
    tab, troubles = opened(browser, written)
    tab.get_by_role("combobox", name="Chip").select_option("tpu-v6e")
    shown = tab.locator(".roofs > div:visible")
    assert shown.count() == 1 and shown.get_attribute("id") == "roof-tpu-v6e"
    assert not troubles


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser: Any, written: pathlib.Path, scheme: str) -> None:
    """Text against the background behind it: at least 4.5 to 1, as WCAG AA asks."""
    tab, troubles = opened(browser, written, color_scheme=scheme)
    worst = tab.evaluate(
        """() => { const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        const rgb = (...layers) => { paint.clearRect(0, 0, 1, 1);
          for (const c of layers) { paint.fillStyle = c; paint.fillRect(0, 0, 1, 1); }
          return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => { v /= 255;
            return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); };
        const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
        const page = matchMedia('(prefers-color-scheme: dark)').matches ? '#121212' : '#ffffff';
        let found = [99, ''];
        const words = 'p, td, th, li, a, code, .range, .word, .figure, .head, .note, svg text';
        for (const each of document.querySelectorAll(words)) {
          const style = getComputedStyle(each), card = each.closest('.card');
          const behind = card ? [page, getComputedStyle(card).backgroundColor] : [page];
          const ink = each.matches('svg text') ? style.fill : style.color;
          const [a, b] = [light(rgb(...behind)), light(rgb(...behind, ink))].sort((x, y) => y - x);
          const ratio = (a + 0.05) / (b + 0.05);
          if (ratio < found[0]) found = [ratio, each.outerHTML.slice(0, 80)];
        }
        return found; }"""
    )
    assert worst[0] >= 4.5, worst
    assert not troubles


def test_a_phone_and_paper(browser: Any, written: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tab, troubles = opened(browser, written, viewport={"width": 390, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390  # tables scroll by themselves
    assert tab.evaluate("[...document.querySelectorAll('.scroll')].every((x) => x.tabIndex === 0 && x.ariaLabel)")
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 1046, "height": 740})  # A4 on its side, less its margins, at 96 dots an inch
    assert tab.evaluate("document.querySelector('#chips').getBoundingClientRect().right") <= 1046
    tab.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
    assert not troubles


def test_without_a_script(browser: Any, written: pathlib.Path) -> None:
    tab, troubles = opened(browser, written, java_script_enabled=False)
    assert tab.locator("#chips tbody tr").count() == len(chips.chips()) and tab.locator("svg:visible").count() >= 3
    assert not troubles
