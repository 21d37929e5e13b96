"""Exports with open sizes: one program for every batch and length, by this package and by JAX alone; clear refusals."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import torch

import torch_pjrt
from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.formulas import Formulas, NoFormula, Scaled

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Decoder(torch.nn.Module):
    """One block of a GPT: positions, a causal mask, attention, a loss-free head, and a float that depends on a size."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(17, 8), torch.nn.Embedding(32, 8)
        self.qkv, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 17)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length, device=ids.device))
        q, k, v = (t.view(batch, length, 2, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)) / length**0.5
        masked = scores.masked_fill(torch.ones(length, length, device=ids.device).triu(1).bool(), float("-inf"))
        x = x + (masked.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, 8)
        return {"logits": self.out(x), "last": x[:, -1], "mean": x.mean((0, 1)) * batch}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Decoder, pathlib.Path]:
    torch.manual_seed(0)
    net = Decoder().eval()
    open_dims = {"ids": {0: "batch", 1: torch.export.Dim("length", max=32)}}
    ids = torch.randint(0, 17, (2, 6))
    return net, torch_pjrt.export(net, (ids,), tmp_path_factory.mktemp("gpt"), dynamic_shapes=open_dims)


def _same(found: Any, want: Any) -> None:
    for name in want:
        torch.testing.assert_close(found[name].cpu(), want[name].detach(), atol=1e-5, rtol=1e-5)


def test_every_size_gives_what_the_model_gives(decoder: tuple[Decoder, pathlib.Path]) -> None:
    net, folder = decoder
    program = torch_pjrt.load(folder)
    for shape in ((1, 1), (3, 32), (9, 7)):
        ids = torch.randint(0, 17, shape)
        _same(program(ids), net(ids))


def test_the_manifest_names_the_dims(decoder: tuple[Decoder, pathlib.Path]) -> None:
    manifest = json.loads((decoder[1] / "manifest.json").read_text())
    assert manifest["inputs"] == [{"shape": ["batch", "length"], "dtype": "int64"}]
    assert manifest["outputs"][0]["shape"] == ["batch", "length", 17]
    assert manifest["dims"]["length"] == {"minimum": 1, "maximum": 32, "example": 6}
    assert manifest["platforms"] == ["cpu", "tpu", "cuda", "rocm"]


def test_jax_alone_runs_any_size(decoder: tuple[Decoder, pathlib.Path]) -> None:
    net, folder = decoder
    script = ROOT / "docs" / "run_with_jax.py"
    code = "import sys; sys.modules['torch'] = sys.modules['torch_pjrt'] = None; "
    code += f"sys.argv = ['run', {str(folder)!r}, 'batch=3', 'length=5']; exec(open({str(script)!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    want = net(torch.ones(3, 5, dtype=torch.long))["logits"].abs().sum().item()
    assert abs(float(done.stdout.splitlines()[0].split()[-1]) - want) < 1e-3 * want


def test_sizes_out_of_range_are_refused(decoder: tuple[Decoder, pathlib.Path]) -> None:
    program = torch_pjrt.load(decoder[1])
    with pytest.raises(InvalidOperandError, match=r"int64\[batch, length\].*length from 1 to 32, here 33"):
        program(torch.zeros(1, 33, dtype=torch.long))
    with pytest.raises(InvalidOperandError, match="Convert it: .to.torch.int64"):
        program(torch.zeros(1, 3, dtype=torch.int32))


def test_an_exported_program_brings_its_own_dims(tmp_path: pathlib.Path) -> None:
    class Net(torch.nn.Linear):
        def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + y + torch.tensor([1.0, 2.0], device=x.device)

    net, kwargs = Net(3, 2), {"y": torch.randn(4, 2)}
    auto = torch.export.Dim.AUTO
    exported = torch.export.export(net, (torch.randn(4, 3),), kwargs, dynamic_shapes={"x": {0: auto}, "y": {0: auto}})
    program = torch_pjrt.load(torch_pjrt.export(exported, None, tmp_path))
    x, y = torch.randn(7, 3), torch.randn(7, 2)
    torch.testing.assert_close(program(x, y=y).cpu(), net(x, y=y).detach(), atol=1e-5, rtol=1e-5)
    with pytest.raises(InvalidOperandError, match="one size to dims of one name"):
        program(x, y=torch.randn(6, 2))


def test_a_size_that_has_to_be_larger_has_a_minimum(tmp_path: pathlib.Path) -> None:
    def first_two(x: torch.Tensor) -> torch.Tensor:
        return x.narrow(1, 0, 2) * 2

    path = torch_pjrt.export(first_two, (torch.ones(3, 5),), tmp_path, dynamic_shapes=({0: "rows", 1: "columns"},))
    assert json.loads((path / "manifest.json").read_text())["dims"]["columns"]["minimum"] == 2
    assert torch_pjrt.load(path)(torch.ones(1, 2)).sum().item() == 4


def test_random_numbers_of_any_size(tmp_path: pathlib.Path) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x), torch.rand_like(x)

    program = torch_pjrt.load(torch_pjrt.export(noisy, (torch.ones(4),), tmp_path, dynamic_shapes=({0: "n"},)))
    one, two = (r.cpu() for r in program(torch.ones(50), seed=3))
    assert not torch.equal(one, two) and float(one.min()) >= 0 and float(one.max()) < 1
    assert torch.equal(one, program(torch.ones(50), seed=3)[0].cpu())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * 2 if x.shape[0] == 4 else x, "torch.export cannot record"),
        (lambda x: torch.linalg.eigvalsh(x[:, None] * x), "cannot be lowered while n stay open"),
    ],
)
def test_what_cannot_stay_open_is_refused(function: Any, message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidOperandError, match=message):
        torch_pjrt.export(function, (torch.ones(4),), tmp_path, dynamic_shapes=({0: "n"},))
    assert not list(tmp_path.iterdir())


def test_formulas() -> None:
    b, s = (3, 4, 6, 7, 10, 12), (8, 13, 10, 19, 9, 16)
    formulas = Formulas([(b, 1000), (s, 10)])  # numbers in the place of JAX's sizes: results can be read off

    def of(function: Any) -> Any:
        return formulas.of(tuple(map(function, b, s)))

    assert of(lambda b, s: 7) == 7
    assert of(lambda b, s: 2 * b * s + 5) == 20005
    assert of(lambda b, s: b + 3 * s - 1) == 1029
    assert of(lambda b, s: b * s * s + s) == 100010
    assert of(lambda b, s: (s - 3) // 2 + 1) == 4
    assert of(lambda b, s: 8 * b * (s // 2)) == 40000
    with pytest.raises(NoFormula):
        of(lambda b, s: b % 3)
    assert formulas.number(tuple(2 / n for n in s)) == Scaled(2.0, 10, -1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_models_of_transformers(name: str, tmp_path: pathlib.Path) -> None:
    transformers = pytest.importorskip("transformers")
    facts = {
        "vocab_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 32,
        "intermediate_size": 64,
    }
    made = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(**facts, max_position_embeddings=64)),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False)
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**facts, num_key_value_heads=2, use_cache=False)
        ),
    }
    model = made[name]().eval()

    def call(batch: int, length: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 64, (batch, length))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)} if name == "bert" else {"input_ids": ids}

    length = torch.export.Dim("length", max=64)
    dims = {argument: {0: "batch", 1: length} for argument in call(1, 1)}
    program = torch_pjrt.load(torch_pjrt.export(model, (), tmp_path, kwargs=call(2, 8), dynamic_shapes=dims))
    for shape in ((1, 1), (3, 17), (2, 64)):
        given = call(*shape)
        found, want = program(**given), model(**given)
        key = "last_hidden_state" if name == "bert" else "logits"
        torch.testing.assert_close(found[key].cpu(), want[key].detach(), atol=2e-4, rtol=2e-4)
