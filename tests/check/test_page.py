"""`check --format html`: one file without a script, which filters, fits a phone and prints; in Chromium where it is."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner

from torch_pjrt.cli.main import main

TIED = """import torch
from torch.cuda import Stream as S
x = torch.ones(2).cuda()  # <script>alert(1)</script>
scaler = torch.amp.GradScaler()
side = S()
"""
STYLE = "import torch\ntorch.backends.cudnn.benchmark = True\n"
BROWSER = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")


@pytest.fixture
def page(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The page of two programs."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("a_rather_long_folder_name" * 4).mkdir()
    pathlib.Path("a_rather_long_folder_name" * 4, "style.py").write_text(STYLE)
    pathlib.Path("train.py").write_text(TIED + f"y = torch.ones(2, device='cuda')  # {'a long line ' * 30}\n")
    assert CliRunner().invoke(main, ["check", ".", "--format", "html", "-o", "page.html"]).exit_code == 1
    return tmp_path / "page.html"


def test_it_is_one_file_that_escapes_code(page: pathlib.Path) -> None:
    text = page.read_text()
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not re.search(r'(src|href)="(?!#)', text) and "@import" not in text and "url(" not in text
    for word in ('lang="en"', "light-dark(", "@media print", "<code>.cuda()</code>", "torch.cuda.Stream", "2 files"):
        assert word in text
    for target in re.findall(r'href="#([^"]*)"', text):
        assert f'id="{target}"' in text


def test_no_findings_make_a_page(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    done = CliRunner().invoke(main, ["check", str(tmp_path), "--format", "html"])
    assert done.exit_code == 0 and "No findings." in done.output and "1 file," in done.output


def asked(page: pathlib.Path, script: str, *options: str) -> Any:
    """What a script in the page gives, in a browser. Errors of the page are its errors."""
    answer = (
        "<script>window.onerror = (m) => document.body.dataset.error = m;"
        f"document.body.dataset.answer = JSON.stringify((() => {{ {script} }})());</script>"
    )
    copy = page.with_name("asked.html")
    copy.write_text(page.read_text().replace("</body>", answer + "</body>"))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *options]
    done = subprocess.run([*command, "--dump-dom", copy.as_uri()], capture_output=True, text=True, timeout=120)
    assert "data-error" not in done.stdout and ":CONSOLE" not in done.stderr, done.stderr
    found = re.findall(r'data-answer="([^"]*)"', done.stdout)[0]
    return json.loads(found.replace("&quot;", '"'))


SHOWN = "[...document.querySelectorAll('{}')].filter((x) => x.offsetHeight > 0).length"


@BROWSER
def test_it_filters_and_fits_a_phone(page: pathlib.Path) -> None:
    places, rules, files = (SHOWN.format(one) for one in (".file tbody tr", "#rules tbody tr", "section"))
    found = asked(
        page,
        "const answer = {};"
        f"answer.all = [{places}, {rules}, {files}];"
        "document.querySelector('#show-style').click();"
        f"answer.filtered = [{places}, {rules}, {files}];"
        "const frame = document.createElement('iframe'); frame.style = 'width: 360px; height: 800px';"
        "document.body.append(frame);"
        "const inner = frame.contentDocument;"
        "inner.head.innerHTML = document.querySelector('style').outerHTML;"
        "inner.body.innerHTML = document.querySelector('main').outerHTML;"
        "const root = inner.documentElement;"
        "answer.phone = [root.scrollWidth - root.clientWidth, getComputedStyle(inner.querySelector('td')).display];"
        "answer.dark = getComputedStyle(document.documentElement).colorScheme;"
        "return answer;",
        "--window-size=1280,900",
    )
    assert found["all"] == [5, 5, 2] and found["filtered"] == [4, 4, 1]
    assert found["phone"] == [0, "block"] and found["dark"] == "light dark"


@BROWSER
def test_it_prints(page: pathlib.Path) -> None:
    pdf = page.with_suffix(".pdf")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={pdf}", page.as_uri()]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert pdf.read_bytes().startswith(b"%PDF") and pdf.stat().st_size > 5000
