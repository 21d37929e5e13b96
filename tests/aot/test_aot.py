"""torch_pjrt.aot: reports for the CPU, the lint for Trainium, and (where their compilers are installed) TPUs and GPUs."""

from __future__ import annotations

import json
import pathlib
import subprocess

import jax
import pytest
import torch
from click.testing import CliRunner

from torch_pjrt import aot
from torch_pjrt.aot import build
from torch_pjrt.cli.main import main
from torch_pjrt.errors import BadSettingError, MissingPluginError
from torch_pjrt.integrations.hf_config import from_config
from torch_pjrt.pjrt import jax_compat, targets, trial


class Net(torch.nn.Module):
    """A small classifier."""

    def __init__(self, width: int = 32, p: float = 0.0) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, width)
        self.drop = torch.nn.Dropout(p)
        self.last = torch.nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(torch.relu(self.first(x))))


def make() -> tuple[Net, tuple[torch.Tensor]]:
    """What --model names."""
    with torch.device("meta"):
        return Net(), (torch.empty(8, 16),)


def _lint(function: object, *args: torch.Tensor) -> set[str]:
    report = aot.compile(function, args, target="trainium")
    assert report.error is None, report
    assert report.ok is (report.verdict == "lint-clean")
    assert all("test_aot.py" in (f.where or "") for f in report.findings), report
    return {f.rule for f in report.findings}


def test_infer_and_train_on_the_cpu() -> None:
    model, args = make()
    infer = aot.compile(model, args)
    assert infer.ok and infer.verdict == "compiles" and infer.parameters == 16 * 32 + 32 + 32 * 4 + 4
    assert infer.memory is not None and infer.memory.arguments >= infer.parameters * 4
    assert infer.cost.flops >= 2 * 8 * (16 * 32 + 32 * 4)
    train = aot.compile(model, args, mode="train", optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1))
    assert train.ok and train.memory.reused >= train.parameters * 4
    assert train.cost.flops > 2 * infer.cost.flops
    assert json.loads(train.json())["memory"]["total"] == train.memory.total
    assert "linear_backward@test_aot.py" in train.stablehlo()
    assert len(infer.executable()) > 100
    assert model.training


def test_a_model_that_cannot_be_recorded() -> None:
    report = aot.compile(lambda x: x if x.any() else -x, (torch.empty(3),))
    assert not report.ok and "HostReadError" in report.error and "test_aot.py" in report.where
    report = aot.compile(lambda x: x @ x, (torch.empty(3, 4),))
    assert not report.ok and "test_aot.py" in report.where


def _needs_a_line(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return torch.linalg.eigvals(y)  # refused


def _line(text: str) -> str:
    lines = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"test_aot.py:{next(n for n, line in enumerate(lines, 1) if line.endswith(text))}"


def test_a_refusal_without_a_line_gets_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    report = aot.compile(_needs_a_line, (torch.empty(4, 4),), target="trainium")  # refused when lowering
    assert report.verdict == "refused" and _line("# refused") in report.where, report
    assert "JAX_TRACEBACK_FILTERING" not in str(report)
    compile_ = jax.stages.Lowered.compile

    def compiles(self: jax.stages.Lowered, options: object) -> jax.stages.Compiled:
        if "stablehlo.maximum" in self.as_text():
            raise RuntimeError("no maxima here")
        return compile_(self, options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiles)
    report = aot.compile(lambda x: torch.relu(x.sin()), (torch.empty(4),))  # refused when compiling
    assert "no maxima here" in report.error and _line("# refused when compiling") in report.where, report


def test_too_large_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def compiles(self: jax.stages.Lowered, options: object) -> jax.stages.Compiled:
        given.append(self)
        raise RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory on HBM")

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiles)
    monkeypatch.setattr(build, "_LOOPS", ("cpu",))
    net = torch.nn.Sequential(*[torch.nn.Sequential(*[torch.nn.Linear(16, 16), torch.nn.GELU()] * 6) for _ in range(8)])
    report = aot.compile(net, (torch.empty(2, 16),))
    assert report.verdict == "does not fit" and report.loops and len(given) == 1
    assert report.argument_bytes >= report.parameters * 4
    assert "the arguments alone" in str(report) and "--no-loops" in str(report)


def test_wrong_names() -> None:
    with pytest.raises(BadSettingError, match="tpu-v6e"):
        aot.compile(*make(), target="tpu-v99")
    with pytest.raises(BadSettingError, match="infer, train, decode"):
        aot.compile(*make(), mode="dream")


def test_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_, given = jax.stages.Lowered.compile, []

    def compiles(self: jax.stages.Lowered, options: object) -> jax.stages.Compiled:
        given.append(options)
        return compile_(self, options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiles)
    report = aot.compile(*make(), effort=-1.0)
    assert report.ok and report.as_dict()["effort"] == -1 and "with effort -1" in str(report)
    assert "effort" not in str(aot.compile(*make()))
    assert given == [{"exec_time_optimization_effort": -1.0}, None]
    with pytest.raises(BadSettingError, match="no effort 2"):
        aot.compile(*make(), effort=2)


def test_a_missing_compiler_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)
    targets.devices_for.cache_clear()
    with pytest.raises(MissingPluginError, match=r'pip install "torch-pjrt\[tpu\]"'):
        aot.compile(*make(), target="tpu-v6e")
    with pytest.raises(MissingPluginError, match=r'pip install "torch-pjrt\[cuda13\]"'):
        aot.compile(*make(), target="h100")


def test_trainium_lint() -> None:
    model, args = make()
    assert aot.compile(model, args, target="trainium").verdict == "lint-clean"
    assert aot.compile(model, args, target="trainium", mode="train").verdict == "lint-clean"
    x = torch.empty(4, 8)
    assert _lint(lambda x: x.topk(2).values, x) >= {"EVRF029"}
    assert _lint(lambda x: torch.nn.functional.dropout(x, 0.5), x) == {"EVRF006"}
    assert _lint(lambda x: x.int() @ x.int().t(), x) == {"EVRF035"}
    assert _lint(lambda x: torch.fft.fft(x).real, x) >= {"EVRF001", "EVRF004"}
    assert _lint(lambda x: x.double() * 2, x) == {"ESPP004"}
    assert _lint(lambda x: torch.histc(x.int(), 4, 0, 3), x) == set()  # how a mixture counts an expert's tokens
    assert _lint(lambda x: torch.linalg.solve_triangular(x, x, upper=True), torch.empty(4, 4)) >= {"EVRF001"}


def test_command(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_here.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(4, 2), (torch.empty(3, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["compile", "--model", "made_here:make", "--target", "cpu"]
    done = CliRunner().invoke(main, [*words, "--target", "trainium", "--json"])
    assert done.exit_code == 0, done.output
    assert [r["verdict"] for r in json.loads(done.stdout)] == ["compiles", "lint-clean"]
    done = CliRunner().invoke(main, [*words, "--save-stablehlo", "p.mlir", "--save-executable", "p.bin"])
    assert done.exit_code == 0 and "dot_general" in pathlib.Path("p.mlir").read_text()
    assert pathlib.Path("p.bin").stat().st_size
    assert CliRunner().invoke(main, ["compile"]).exit_code == 2
    assert CliRunner().invoke(main, [*words, "--effort", "2"]).exit_code == 2
    assert "with effort -1" in CliRunner().invoke(main, [*words, "--effort", "-1"]).output
    assert "tpu-v6e" in CliRunner().invoke(main, ["compile", "--list"]).output


def test_hugging_face_config(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("transformers")
    facts = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_embd": 32, "n_head": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**facts, "vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0}))
    done = CliRunner().invoke(
        main, ["compile", "--config", str(path), "--length", "16", "--target", "trainium", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["parameters"] > 64 * 32


def test_one_token_against_a_cache(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("transformers")
    facts = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "vocab_size": 64}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**facts, **sizes, "dtype": "float32"}))
    words = ["compile", "--config", str(path), "--mode", "decode", "--length", "40", "--batch", "3", "--json"]
    done = CliRunner().invoke(main, [*words, "--target", "cpu"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)[0]
    cache = 2 * 2 * (3 * 2 * 40 * 8) * 4  # keys and values, layers, elements of one, float32
    assert report["verdict"] == "compiles" and report["memory"]["reused"] >= cache
    assert CliRunner().invoke(main, [*words, "--target", "cpu", "--mesh", "model"]).exit_code == 2


@pytest.mark.parametrize(("dtype", "op"), [("bfloat16", "_grouped_mm"), ("float32", "bmm")])
def test_a_mixture_of_experts(tmp_path: pathlib.Path, dtype: str, op: str) -> None:
    pytest.importorskip("transformers")
    facts = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 1, "dtype": dtype}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**facts, **sizes, "vocab_size": 64, "num_local_experts": 4}))
    report = aot.compile(*from_config(path, length=8, mode="train"), mode="train")
    assert report.ok, report
    assert f"{op}@" in report.stablehlo()
    path.write_text(json.dumps({"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "dtype": dtype}))
    assert from_config(path)[0].num_parameters() > 32 * 32  # no experts


@pytest.mark.parametrize("name", ["tpu-v5e", "tpu-v6e", "h100", "a100"])
def test_absent_chips(name: str) -> None:
    targets.devices_for.cache_clear()
    missing = targets.available(name)
    if missing:
        pytest.skip(missing)
    report = aot.compile(*make(), target=name)
    assert report.ok and 0 < report.memory.total < report.chip_memory, report


# The child of a trial, with a compiler that ends the process over sines and refuses cosines.
_CHILD = """
import os, sys
from torch_pjrt.pjrt import jax_compat, trial

def compiles(module, devices, options):
    assert options == {"exec_time_optimization_effort": -1.0} and len(devices) == 1
    if b"stablehlo.sine" in module:
        os.write(2, b"F1201 04:20:17.695109   18874 rewriter.cc:3271] Check failed: no sines" + bytes([10]))
        os.abort()
    raise RuntimeError("no cosines")

jax_compat.compile_absent = compiles
sys.exit(trial.main(sys.argv[1:]))
"""


def test_a_compiler_that_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    run, commands = subprocess.run, []

    def child(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return run([command[0], "-c", _CHILD, *command[3:]], **options)

    monkeypatch.setattr(trial.subprocess, "run", child)

    def turn(x: torch.Tensor) -> torch.Tensor:
        y = x.cos()
        return y + x.sin()  # the end

    x = torch.empty(3)
    assert aot.compile(turn, (x,), effort=-1.0).ok and not commands  # nobody dreads float32 on the CPU
    report = aot.compile(turn, (x,), effort=-1.0, isolated=True)
    assert report.verdict == "refused" and "Check failed: no sines" in report.error, report
    assert "ended its process" in report.error and "sin" in report.error and _line("# the end") in report.where
    assert [command[2] for command in commands] == [trial.__name__] * 2
    tried = []
    monkeypatch.setattr(trial, "_DREADED", {"cpu": frozenset({"float64"})})
    monkeypatch.setattr(trial, "first_fatal", lambda target, *args, **options: tried.append(target))
    assert aot.compile(turn, (x.double(),)).ok and tried == ["cpu"]


def test_a_trial_compiles() -> None:
    stage = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((3,), "float32"))
    taken = jax_compat.compile_absent(stage.as_text().encode(), targets.devices_for("cpu"), {})
    assert taken is not None
    assert trial.first_fatal("cpu", [stage.as_text().encode(), b"not a program"]) is None


def test_a_dtype_over_which_libtpu_ends() -> None:
    missing = targets.available("tpu-v5e")
    if missing:
        pytest.skip(missing)
    report = aot.compile(lambda x: x * 2, (torch.empty(4, 4, dtype=torch.complex128),), target="tpu-v5e")
    assert report.ok or report.where is not None and "ended its process" in report.error, report
