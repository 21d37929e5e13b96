"""`torch-pjrt port`: what it writes compiles, is stable, keeps the rest of the text, and computes the same everywhere.

Programs of the corpus that begin with `# runs` are run: as they are on the CPU where they can, ported on the CPU, and
ported on the pjrt device. Each way is one process for all of them.
"""

from __future__ import annotations

import difflib
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("libcst")

from torch_pjrt.check import RULES, Severity
from torch_pjrt.port import port_text

CORPUS = pathlib.Path(__file__).parent / "corpus"
PROGRAMS = sorted(path for path in CORPUS.glob("*.py") if path.name != "not_python.py")
RUNNABLE = [path for path in PROGRAMS if path.read_text().startswith("# runs")]

# Runs programs given as JSON on stdin, prints their `result` as JSON; None for one that raises.
RUNNER = """
import json, sys, contextlib, io
import torch
found = {}
for name, text in json.load(sys.stdin).items():
    space = {"__name__": "program"}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, name, "exec"), space)
        found[name] = float(space["result"])
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
kind = torch.accelerator.current_accelerator()
print(json.dumps({"device": kind.type if kind else "cpu", "results": found}))
"""


def run(programs: dict[str, str], *, with_device: bool) -> dict:
    """The results of programs, in a process of its own."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if with_device else "0"}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def ported(path: pathlib.Path) -> str:
    return port_text(path.read_text(), path.name).text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_it_compiles_and_is_stable(path: pathlib.Path) -> None:
    once = port_text(path.read_text(), path.name)
    compile(once.text, path.name, "exec")
    twice = port_text(once.text, path.name)
    assert (twice.text, twice.changes) == (once.text, 0)
    assert [one.rule.id for one in once.left] == [one.rule.id for one in twice.left]


@pytest.mark.parametrize("path", [one for one in PROGRAMS if one.name.startswith("clean_")], ids=lambda path: path.name)
def test_clean_programs_stay_as_they_are(path: pathlib.Path) -> None:
    assert ported(path) == path.read_text()


@pytest.mark.parametrize(
    "path", [one for one in PROGRAMS if one.name.startswith("ignored")], ids=lambda path: path.name
)
def test_hidden_findings_stay_as_they_are(path: pathlib.Path) -> None:
    assert ported(path) == path.read_text()


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.name)
def test_nothing_that_breaks_is_left_in_runnable_programs(path: pathlib.Path) -> None:
    left = port_text(path.read_text(), path.name).left
    assert not [one for one in left if one.severity is Severity.BREAKS and one.rule.id != "PJ701"]


def test_results_are_the_same_on_the_cpu_and_on_the_device() -> None:
    texts = {path.name: ported(path) for path in RUNNABLE}
    originals = {f"original {path.name}": path.read_text() for path in RUNNABLE}
    with ThreadPoolExecutor() as pool:
        on_device = pool.submit(run, texts, with_device=True)
        cpu = run(originals | texts, with_device=False)
        device = on_device.result()
    assert (cpu["device"], device["device"]) == ("cpu", "pjrt")
    ran = 0
    for name in texts:
        want = cpu["results"][f"original {name}"]
        if isinstance(want, float):
            ran += 1
            assert cpu["results"][name] == want, name
        assert isinstance(cpu["results"][name], float), (name, cpu["results"][name])
        if name not in ("seeds.py", "gate_of_calls.py"):
            assert device["results"][name] == pytest.approx(cpu["results"][name], rel=1e-5, abs=1e-6), name
    assert ran >= 8 and len(texts) >= 15


def change(before: str) -> str:
    """The lines that differ, as a user sees them."""
    before = textwrap.dedent(before).lstrip("\n")
    after = port_text(before, "x.py").text
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def test_comments_and_layout_stay() -> None:
    assert change(
        """
        import torch

        def step(x):
            # before
            torch.cuda.synchronize( )   # why
            # after
            return x.cuda(  # here
                non_blocking=True,   # and here
            )
        """
    ) == "\n".join(
        (
            "+",
            '+DEVICE_TYPE = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"',
            "-    torch.cuda.synchronize( )   # why",
            "+    if torch.accelerator.is_available():",
            "+        torch.accelerator.synchronize( )   # why",
            "-    return x.cuda(  # here",
            "-        non_blocking=True,   # and here",
            "+    return x.to(  # here",
            "+        DEVICE_TYPE, non_blocking=True,   # and here",
        )
    )


def test_a_gate_is_not_opened_for_what_only_cuda_can_do() -> None:
    assert (
        change(
            """
        import torch
        if torch.cuda.is_available():
            print(torch.cuda.get_device_name())
            device = "cuda"
        """
        )
        == ""
    )


def test_a_branch_that_names_cuda_stays_as_it_is() -> None:
    for test in (
        'device.type == "cuda"',
        'str(device).startswith("cuda:")',
        "kind == Kind.CUDA",
        'not device == "cuda"',
    ):
        body = "pass\nelse:\n    torch.cuda.synchronize()\n" if test.startswith("not") else "torch.cuda.synchronize()\n"
        assert change(f"import torch\nif {test}:\n    {body}") == "", test


def test_a_gate_is_opened_over_a_branch_that_names_cuda() -> None:
    inner = "    if device == 'cuda':\n        torch.cuda.synchronize()\n"
    text = f"import torch\nif torch.cuda.is_available():\n    device = 'cuda'\n{inner}"
    assert change(text).splitlines() == [
        "-if torch.cuda.is_available():",
        "-    device = 'cuda'",
        "+if torch.accelerator.is_available():",
        "+    device = torch.accelerator.current_accelerator().type",
    ]


def test_a_gate_with_a_vendor_import_is_not_opened() -> None:
    assert change("import torch\nif torch.cuda.is_available():\n    import flash_attn\n") == ""


def test_the_name_of_torch_is_the_module_s_own() -> None:
    assert change("import torch as t\nx = t.cuda.device_count()\n") == "\n".join(
        ("-x = t.cuda.device_count()", "+x = t.accelerator.device_count()")
    )


def test_imports_that_are_not_needed_any_more_go() -> None:
    shown = change("import torch\nfrom torch.cuda.amp import autocast, GradScaler as G\nwith autocast(): pass\ng = G\n")
    assert "-from torch.cuda.amp import autocast, GradScaler as G" in shown
    assert "+from torch.cuda.amp import GradScaler as G" in shown
    assert "+with torch.amp.autocast(DEVICE_TYPE): pass" in shown


def test_torch_is_imported_where_only_its_parts_were() -> None:
    text = port_text(
        '"""Doc."""\nfrom __future__ import annotations\nfrom torch import nn\nx = nn.Linear(1, 1).cuda()\n'
    ).text
    compile(text, "x.py", "exec")
    assert text.index("import annotations") < text.index("import torch\n") < text.index("DEVICE_TYPE =")


@pytest.mark.parametrize(
    "text",
    [
        "import os\nprint(os.name)\nimport torch\ndevice = 'cuda'\n",
        "device = 'cuda'\nimport torch\nx = torch.zeros(2, device=device)\n",
        "import torch, os\ndevice = 'cuda'\n",
        "import torch as t\ndevice = rf'cuda:{1}'\n",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\nimport torch.nn as nn\ndevice = 'cuda'\n",
        "from torch import nn\ndevice = 'cuda'\n",
    ],
)
def test_the_device_type_is_defined_before_it_is_used(text: str) -> None:
    after = port_text(text, "x.py").text
    space: dict[str, object] = {}
    exec(compile(after, "x.py", "exec"), space)
    assert str(space["device"]).startswith("pjrt") and port_text(after, "x.py").changes == 0


def test_line_ends_and_encoding_stay(tmp_path: pathlib.Path) -> None:
    from torch_pjrt.cli.port import port

    path = tmp_path / "a.py"
    path.write_bytes(
        "# -*- coding: latin-1 -*-\r\nimport torch\r\ns = 'é'\r\nn = torch.cuda.device_count()\r\n".encode("latin-1")
    )
    path.chmod(0o755)
    port([str(path)], write=True, as_json=False, exclude=(), quiet=True)
    want = "# -*- coding: latin-1 -*-\r\nimport torch\r\ns = 'é'\r\nn = torch.accelerator.device_count()\r\n"
    assert path.read_bytes() == want.encode("latin-1")
    assert path.stat().st_mode & 0o777 == 0o755


def test_a_link_does_not_lead_out_of_the_given_paths(tmp_path: pathlib.Path) -> None:
    from torch_pjrt.cli.port import port

    outside, inside = tmp_path / "outside.py", tmp_path / "src"
    outside.write_text("import torch\nn = torch.cuda.device_count()\n")
    inside.mkdir()
    (inside / "link.py").symlink_to(outside)
    port([str(inside)], write=True, as_json=False, exclude=(), quiet=True)
    assert "cuda" in outside.read_text()


def test_rules_that_port_names_exist() -> None:
    assert {"PJ101", "PJ105", "PJ203", "PJ306", "PJ501", "PJ701"} <= set(RULES)


DISTRIBUTED = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(rank)
model = DDP(torch.nn.Linear(2, 1).cuda(rank), device_ids=[rank], output_device=rank)
loss = model(torch.ones(3, 2).cuda(rank)).sum()
loss.backward()
dist.barrier(device_ids=[rank])
dist.destroy_process_group()
print("trained on", loss.device)
"""


def test_a_distributed_program_runs_on_the_cpu_and_says_what_the_device_lacks(tmp_path: pathlib.Path) -> None:
    """The rank of a second process, so that an index would be refused; on CUDA every index stays."""
    done = port_text(DISTRIBUTED, "train.py")
    assert [one.rule.id for one in done.left] == ["PJ506"] and done.left[0].severity is Severity.BREAKS
    for kept in ('device_ids=[rank] if DEVICE_TYPE == "cuda" else None', 'output_device=rank if DEVICE_TYPE == "cuda"'):
        assert kept in done.text
    assert port_text(done.text, "train.py").changes == 0
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    (tmp_path / "train.py").write_text(done.text)
    ran = subprocess.run(
        [sys.executable, "train.py"],
        capture_output=True,
        text=True,
        env={**os.environ, **ranks, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0 and "trained on cpu" in ran.stdout, ran.stderr


def test_check_knows_whether_the_device_has_process_groups() -> None:
    import torch.distributed

    from torch_pjrt.check.detect_distributed import HAS_PROCESS_GROUPS

    known = torch.distributed.Backend.default_device_backend_map
    assert ("pjrt" in known) == HAS_PROCESS_GROUPS, "PJ506 goes when the device has a backend: set HAS_PROCESS_GROUPS"


def test_an_index_stays_where_it_is_not_the_current_device() -> None:
    assert "torch.device(DEVICE_TYPE, rank)" in port_text("import torch\nrank = 1\nx = torch.ones(2).cuda(rank)\n").text
    both = "import torch\ntorch.cuda.set_device(0)\nrank = 1\nx = torch.ones(2).cuda(rank)\n"
    assert "torch.device(DEVICE_TYPE, rank)" in port_text(both).text
