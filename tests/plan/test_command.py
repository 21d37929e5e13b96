"""`torch-pjrt plan` as a user meets it: output, files, job files, and clear errors with nothing half-written."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import yaml
from click.testing import CliRunner, Result

from torch_pjrt.cli.main import main

BASE = ["--model", "tiny", "--batch", "8", "--sequence", "64"]


def plan(*words: str, base: list[str] | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["plan", *(BASE if base is None else base), *words])


@pytest.fixture(autouse=True)
def apart(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No calibration but the test's own."""
    monkeypatch.setattr("click.get_app_dir", lambda name: str(tmp_path / "config"))


def test_text() -> None:
    done = plan("--tokens", "1e9")
    assert done.exit_code == 0, done.output
    for word in (
        "tpu-v6e",
        "within the error bar",
        "assumptions",
        "--assume",
        "[V5, 2026-04-03]",
        "Google Cloud, TPU v6e",
    ):
        assert word in done.output
    assert "trn3" in done.output and "unknown" in done.output


def test_json() -> None:
    done = plan("--json", "--chips", "h100,trn3", "--ownership", "owned", "--tokens", "1M")
    data = json.loads(done.stdout)
    h100, trn3 = data["chips"]
    assert h100["step_seconds"]["low"] < h100["step_seconds"]["mid"] < h100["step_seconds"]["high"]
    assert h100["price"]["per_hour"] == 1.30 and h100["price"]["date"]
    assert h100["facts"]["bfloat16"]["source"] == "V5" and h100["compiles"] == "not checked"
    assert trn3["dollars_per_million"] is None and trn3["joules_per_unit"] is None
    assert h100["run_dollars"]["mid"] == pytest.approx(h100["dollars_per_million"]["mid"])


@pytest.mark.parametrize("kind", ["train", "prefill", "decode", "batch-infer"])
def test_every_workload(kind: str) -> None:
    done = plan("--workload", kind, "--json", "--chips", "h100")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["work"]["matmul_flops"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--chips", "h1000"], "did you mean 'h100'"),
        (["--batch", "-3"], "--batch must be at least 1"),
        (["--workload", "dance"], "choose one of train"),
        (["--dtype", "float7"], "there is no dtype"),
        (["--count", "0"], "--count must be at least 1"),
        (["--layout", "tensr=2"], "did you mean 'tensor'"),
        (["--layout", "zero=4"], "zero must be a whole number"),
        (["--recompute", "some"], "--recompute must be one of auto, none, selective, full"),
        (["--latency", "fast"], "a number with one of the units"),
        (["--deadline", "3h"], "needs --tokens"),
        (["--tokens", "many"], "a number with one of the units"),
        (["--assume", "matmull=1"], "did you mean 'matmul'"),
        (["--utilisation", "x"], "utilisation must be"),
        (["--prices", "nowhere.toml"], "cannot read the price file"),
        (["--html", "no/such/folder/x.html"], "cannot write"),
        (["--emit", "k8s"], "needs the command to run"),
        (["--check", "nowhere.py"], "nowhere.py"),
    ],
)
def test_a_wrong_request(words: list[str], says: str) -> None:
    done = plan(*words)
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("no-such-model", "there is no model"),
        ("no_such_module:make", "does not import"),
        ("json:dumps", "raised TypeError"),
    ],
)
def test_a_model_that_cannot_be_had(model: str, says: str) -> None:
    done = plan(base=["--model", model])
    assert done.exit_code == 2 and says in " ".join(done.output.split())


def test_a_missing_extra(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    monkeypatch.setattr("torch_pjrt.cli.plan_run._reader", lambda: None)
    done = plan(base=["--model", str(tmp_path / "config.json")])
    assert done.exit_code == 3 and "pip install" in done.output


def test_nothing_is_half_written(tmp_path: pathlib.Path) -> None:
    page, prices = tmp_path / "page.html", tmp_path / "prices.toml"
    prices.write_text('[[price]]\nchip = "h100"\nper_hour = "x"\n')
    page.write_text("before")
    assert plan("--html", str(page), "--prices", str(prices)).exit_code == 2
    assert page.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "prices.toml"]


def test_attention_may_write_its_scores() -> None:
    words = ("--json", "--chips", "h100", "--workload", "prefill", "--sequence", "512")
    written = json.loads(plan(*words).stdout)
    fused = json.loads(plan(*words, "--assume", "fused-attention=1").stdout)
    assert written["work"]["memory_traffic_bytes"] > 2 * fused["work"]["memory_traffic_bytes"]
    here, there = written["chips"][0]["attention"], fused["chips"][0]["attention"]
    assert not here["scores_stay_on_the_chip"] and "cuDNN" in here["basis"]
    assert there["scores_stay_on_the_chip"] and there["basis"] == "given by the user"
    assert here["step_seconds_otherwise"]["mid"] == pytest.approx(fused["chips"][0]["step_seconds"]["mid"])


def test_a_layout_of_ones_own() -> None:
    done = plan("--json", "--chips", "h100", "--layout", "data=2,tensor=2,pipeline=2,zero=1")
    row = json.loads(done.stdout)["chips"][0]
    assert row["chips"] == 8 and {k: row["axes"][k] for k in ("data", "tensor", "pipeline", "zero")} == {
        "data": 2,
        "tensor": 2,
        "pipeline": 2,
        "zero": 1,
    }
    assert set(row["sent_bytes"]) == {"data", "tensor", "pipeline"} and row["parts_seconds"]["pipeline bubble"] > 0


def test_no_chip_meets_it() -> None:
    assert plan("--latency", "0.000001ms", "--chips", "l4").exit_code == 1


def test_a_function_of_ones_own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_plan.py").write_text(
        "import torch\ndef make():\n    m = torch.nn.Linear(8, 4)\n    return m, (torch.empty(5, 8),)\n"
        "def helper(x):\n    return x.cuda()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    done = plan("--json", "--chips", "h100", "--workload", "batch-infer", base=["--model", "mine_for_plan:make"])
    data = json.loads(done.stdout)
    assert data["work"]["matmul_flops"] == 2 * 5 * 8 * 4 and data["units_per_step"] == 5
    assert data["migration"]["by_severity"]["breaks"] >= 1


def test_a_configuration_file(tmp_path: pathlib.Path) -> None:
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 99,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "num_key_value_heads": 2, **sizes}))
    done = plan("--json", "--chips", "h100", "--workload", "decode", base=["--model", str(path)])
    each = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert json.loads(done.stdout)["work"]["parameters"] == 2 * each + 64 + 2 * 99 * 64
    path.write_text('{"model_type": "llama"}')
    assert "lacks" in plan(base=["--model", str(path)]).output


def test_the_page(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.html"
    done = plan("--html", str(page), "--tokens", "1e9")
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert not re.search(r'(src|href)="(?!#|data:)', text) and "@import" not in text and "url(" not in text
    for word in ("Cost against time", "Roofline", "Assumptions", "Facts and sources", "light-dark("):
        assert word in text
    assert text.count("<svg") >= 3 and text.count("<tr") > 30 and 'lang="en"' in text and "@media print" in text


@pytest.mark.parametrize("chip", ["h100", "tpu-v6e", "trn2", "mi300x"])
def test_job_files(chip: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "job"
    run = "python train.py --name 'a: b' && echo \"done\""
    texts = {}
    for engine in ("skypilot", "k8s", "ray"):
        done = plan(
            "--emit",
            engine,
            "--for",
            chip,
            "--run",
            run,
            "-o",
            str(path),
            "--count",
            "16" if chip == "h100" else "1",
            base=["--model", "tiny", "--batch", "16", "--sequence", "64"],
        )
        assert done.exit_code == 0, done.output
        texts[engine] = path.read_text()
    sky = yaml.safe_load(texts["skypilot"])
    assert set(sky) == {"name", "num_nodes", "resources", "workdir", "setup", "run"} and sky["run"].strip() == run
    assert sky["num_nodes"] == (2 if chip == "h100" else 1)
    job, *rest = yaml.safe_load_all(texts["k8s"])
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job") and run in container["args"][0]
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    assert [r["kind"] for r in rest] == (["Service"] if chip == "h100" else [])
    ray = json.loads(texts["ray"])
    assert ray["entrypoint"] == run and ray["runtime_env"]["pip"][0].startswith("torch-pjrt")
    assert set(ray) - {"entrypoint", "runtime_env", "metadata"} <= {"entrypoint_num_gpus", "entrypoint_resources"}


def test_measuring_here(tmp_path: pathlib.Path) -> None:
    """A run on this machine is kept; later plans take the same work from it, and scale other work by it."""
    kept = tmp_path / "calibration.json"
    words = ("--workload", "prefill", "--calibration", str(kept), "--json")
    assert "after a run with --measure" in plan("--chips", "cpu", *words).output
    done = plan("--measure", "--chips", "h100", *words)
    assert done.exit_code == 0, done.output
    h100, here = json.loads(done.stdout)["chips"]
    stored = json.loads(kept.read_text())
    (entry,), (machine,) = stored["runs"], stored["machines"]
    assert entry["model"] == "tiny" and 0 < entry["low"] <= entry["seconds"] <= entry["high"]
    assert machine["chip"] == here["chip"] == "cpu" and machine["rates"]["float32"] > 1e8 and machine["bandwidth"] > 1e8
    assert here["method"].startswith("measured here") and here["step_seconds"]["low"] == entry["low"]
    assert here["facts"]["bandwidth"]["source"] == "measured" and h100["method"] == "roofline"

    again = json.loads(plan("--chips", "cpu,h100", *words).stdout)["chips"][0]
    assert again["step_seconds"] == here["step_seconds"] and again["method"] == here["method"]
    longer = json.loads(plan("--chips", "cpu", *words, "--sequence", "256").stdout)["chips"][0]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({"runs": [], "machines": [machine]}))
    plain = json.loads(plan("--chips", "cpu", *words[:3], str(bare), "--json", "--sequence", "256").stdout)["chips"][0]
    assert longer["method"] == "roofline scaled by 1 measured run" and plain["method"] == "roofline"
    ratio = entry["seconds"] / entry["middle"]
    assert longer["step_seconds"]["mid"] == pytest.approx(plain["step_seconds"]["mid"] * ratio, rel=0.01)

    text = plan("--measure", "--chips", "h100", "--workload", "train", "--calibration", str(kept)).output
    assert "measured on cpu" in text and len(json.loads(kept.read_text())["runs"]) == 2
    kept.write_text("{}")
    assert plan("--calibration", str(kept)).exit_code == 2


def test_compilers_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    done = plan("--compile", "--chips", "trn2,mi300x", "--json", "--workload", "prefill")
    assert done.exit_code == 0, done.output
    trn2, mi300x = json.loads(done.stdout)["chips"][::1]
    assert {trn2["chip"]: trn2["compiles"].split(":")[0], mi300x["chip"]: mi300x["compiles"].split(":")[0]} == {
        "trn2": "lint-clean",
        "mi300x": "not checked",
    }


@pytest.mark.parametrize("kind", ["train", "prefill"])
def test_a_configuration_of_transformers(kind: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("transformers")
    sizes = {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 99,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "bert", "architectures": ["BertForMaskedLM"], **sizes}))
    done = plan("--json", "--chips", "h100", "--workload", kind, "--sequence", "64", base=["--model", str(path)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["work"]["matmul_flops"] > 0
