"""`python -m torch_pjrt.testing.target_table`: compiles known models for chips that are not here and writes docs/targets.md.

Results are kept in docs/targets.json, so that a run may do a few models or targets only and the page still has all. Each
compile runs in a process beside this one, under a time limit. Shapes are real, weights are not: nothing is downloaded.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
from collections.abc import Callable
from typing import Any

import click

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
Made = tuple[Any, Any, dict[str, Any]]


def _hugging(maker: str, config: str, batch: int, length: int, **facts: Any) -> Callable[[bool], Made]:
    def make(train: bool) -> Made:
        import torch
        import transformers

        from torch_pjrt.integrations.hf_config import arguments, experts_of_known_shapes

        with torch.device("meta"):
            model = getattr(transformers, maker)(getattr(transformers, config)(**facts)).to(torch.bfloat16)
        experts_of_known_shapes(model)
        return model, (), arguments(model, batch=batch, length=length, train=train)

    return make


_LLAMA = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
_WHISPER = {
    "d_model": 768,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "decoder_start_token_id": 50257,
}
# name: (sizes, how it is made)
MODELS: dict[str, tuple[str, Callable[[bool], Made]]] = {
    "BERT-base": ("8 x 128", _hugging("BertForMaskedLM", "BertConfig", 8, 128)),
    "GPT-2": ("4 x 512", _hugging("GPT2LMHeadModel", "GPT2Config", 4, 512, loss_type="ForCausalLM")),
    "ResNet-50": ("16 x 224 x 224", _hugging("ResNetForImageClassification", "ResNetConfig", 16, 0, image_size=224)),
    "ViT-B": ("16 x 224 x 224", _hugging("ViTForImageClassification", "ViTConfig", 16, 0)),
    "Whisper-small": ("2 x 30 s", _hugging("WhisperForConditionalGeneration", "WhisperConfig", 2, 64, **_WHISPER)),
    "Llama-3-8B": ("1 x 1024", _hugging("LlamaForCausalLM", "LlamaConfig", 1, 1024, **_LLAMA)),
    "Llama-3-8B, model=8": ("1 x 1024", _hugging("LlamaForCausalLM", "LlamaConfig", 1, 1024, **_LLAMA)),
    "Mixtral-8x7B": ("1 x 64", _hugging("MixtralForCausalLM", "MixtralConfig", 1, 64)),
    "Mixtral-8x7B, model=8": ("1 x 64", _hugging("MixtralForCausalLM", "MixtralConfig", 1, 64)),
}

_HEAD = """# Models compiled for chips that are not here

Written by `python -m torch_pjrt.testing.target_table` from compiles on a machine without any of these chips; do not edit.
Weights are bfloat16 and were never made; *train* is loss, backward and one AdamW step. Memory is what the compiler plans for
one device, against what the device has. *not done* in the last column: the compiler did not finish within the limit given,
which says nothing of the program. Trainium's compiler is not public, so its column has the rules of its documentation that the
program breaks. *loops*: blocks of equal layers that the compiler saw once, weights stacked. *model=8*: sharded over eight
devices, memory of one. Times are of busy machines; CPU time includes recording the model.
*effort -1*: compiled with `--effort -1`, by which the compiler optimises less; verdict and memory are of that program, one
compiled without it may differ. [compile.md](compile.md) says how to do this with a model of your own.

"""


@click.command()
@click.option("--model", "models", multiple=True, help="One of the table; all by default.")
@click.option("--target", "targets", multiple=True, default=("h100",), show_default=True)
@click.option("--mode", "modes", multiple=True, default=("infer", "train"), show_default=True)
@click.option("--again", is_flag=True, help="Compile also what the table has; without it only what it lacks.")
@click.option("--limit", default=600, show_default=True, help="Seconds for one compile.")
@click.option("--effort", default=0.0, show_default=True, help="How hard the compiler tries; see torch-pjrt compile.")
def main(
    models: tuple[str, ...], targets: tuple[str, ...], modes: tuple[str, ...], again: bool, limit: int, effort: float
) -> None:
    """Compile models for targets and write docs/targets.md."""
    worker = _Worker()
    for target in targets:
        for model in models or tuple(MODELS):
            for mode in modes:
                if not again and _known().get(f"{model}|{mode}|{target}", {}).get("verdict", "not done") != "not done":
                    continue
                facts = worker.ask((model, target, mode, effort), limit)
                _keep(f"{model}|{mode}|{target}", facts)
                write_page()
                print(f"{model} {mode} {target}: {facts['verdict']} {_times(facts)}", flush=True)
    worker.stop()
    write_page()


class _Worker:
    """A process that compiles: the next compile has another one when it ends by itself or takes too long."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, cell: tuple[str, str, str, float], limit: int) -> dict[str, Any]:
        """What came of one compile."""
        try:
            self.pipe.send(cell)
            if self.pipe.poll(limit):
                return dict(self.pipe.recv())
            found = {"verdict": "not done", "error": f"not within {limit} s"}
        except (EOFError, ConnectionError):
            self.process.join()
            found = {
                "verdict": "refused",
                "error": f"the compiler ended the process, with code {self.process.exitcode}",
            }
        self.stop()
        self._start()
        return found

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def _work(pipe: Any) -> None:
    while True:
        cell = pipe.recv()
        try:
            pipe.send(_facts(*cell))
        except Exception as error:  # noqa: BLE001 - of the model's library, before there is a report
            pipe.send({"verdict": "refused", "error": f"{type(error).__name__}: {error}"})


def _facts(model: str, target: str, mode: str, effort: float) -> dict[str, Any]:
    """One compile, in this process."""
    import torch

    from torch_pjrt import aot

    torch.set_float32_matmul_precision("medium")
    made, args, kwargs = MODELS[model][1](mode == "train")
    mesh = model.partition(", ")[2] or None
    before = _spent()
    report = aot.compile(made, args, kwargs, target=target, mode=mode, mesh=mesh, effort=effort)
    return {**report.as_dict(), "cpu_seconds": round(_spent() - before, 1)}


def _spent() -> float:
    """Seconds of CPU of this process and of those that it has ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _keep(key: str, facts: dict[str, Any]) -> None:
    slim = {
        k: v
        for k, v in facts.items()
        if k
        in ("verdict", "memory", "argument_bytes", "chip_memory", "cost", "ops", "versions", "loops", "collectives")
        + ("compile_seconds", "cpu_seconds", "effort")
    }
    if facts.get("error"):
        slim["error"] = str(facts["error"]).splitlines()[0][:300]
        where = str(facts.get("where") or "").split(" in ")[0]
        slim["where"] = where.replace("\\", "/").split("/site-packages/")[-1]
    slim["rules"] = sorted({f"{f['rule']} ({f['op']})" for f in facts.get("findings", ())})
    (DOCS / "targets.json").write_text(json.dumps({**_known(), key: slim}, indent=1, sort_keys=True) + "\n")


def _known() -> dict[str, Any]:
    path = DOCS / "targets.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_page() -> None:
    """docs/targets.md from docs/targets.json."""
    (DOCS / "targets.md").write_text(page(), encoding="utf-8")


def page() -> str:
    """The text of docs/targets.md, from docs/targets.json."""
    known = json.loads((DOCS / "targets.json").read_text())
    head = "| model | sizes | mode | target | verdict | memory | of | arguments | temporaries | flops | compiled in |\n"
    rows = [_row(key, facts) for key, facts in sorted(known.items(), key=lambda item: _order(item[0]))]
    versions = {v for facts in known.values() for v in [json.dumps(facts.get("versions") or {})] if v != "{}"}
    last = "".join(
        f"\nVersions: {', '.join(f'{k} {v}' for k, v in json.loads(v).items())}.\n" for v in sorted(versions)
    )
    return _HEAD + head + "|" + "---|" * 11 + "\n" + "".join(rows) + last


def _order(key: str) -> tuple[int, str, str]:
    model, mode, target = key.split("|")
    return list(MODELS).index(model), mode, target


def _row(key: str, facts: dict[str, Any]) -> str:
    from torch_pjrt.aot.report import size

    model, mode, target = key.split("|")
    memory = facts.get("memory") or {}
    verdict = facts["verdict"]
    if facts.get("rules"):
        verdict += ": " + ", ".join(f"{rule} ({', '.join(ops)})" for rule, ops in _by_rule(facts["rules"]).items())
    if facts.get("loops"):
        count = len(facts["loops"])
        verdict += f" ({count} loop{'s' if count > 1 else ''})"
    if facts.get("collectives"):
        verdict += "; " + ", ".join(f"{n} {name}" for name, n in sorted(facts["collectives"].items()))
    if facts.get("error"):
        verdict += f": {facts['error'].replace('|', '/')} {facts.get('where') or ''}"
    flops = (facts.get("cost") or {}).get("flops")
    cells = [model, MODELS[model][0], mode, target, verdict]
    cells += [
        size(memory.get("total")) if memory else "",
        size(facts["chip_memory"]) if facts.get("chip_memory") else "",
    ]
    arguments = memory.get("arguments", facts.get("argument_bytes"))
    cells += [size(arguments) if arguments else "", size(memory.get("temporaries")) if memory else ""]
    cells += [
        f"{flops:.3g}" if flops else "",
        _times(facts),
    ]
    return "| " + " | ".join(cells) + " |\n"


def _by_rule(rules: list[str]) -> dict[str, list[str]]:
    """From "rule (op)" to the ops of each rule."""
    found: dict[str, list[str]] = {}
    for each in rules:
        rule, _, op = each.partition(" (")
        found.setdefault(rule, []).append(op.rstrip(")"))
    return found


def _times(facts: dict[str, Any]) -> str:
    if not facts.get("compile_seconds"):
        return ""
    cpu = f" ({facts['cpu_seconds']:.0f} s of CPU)" if facts.get("cpu_seconds") else ""
    return f"{facts['compile_seconds']:.0f} s{cpu}" + (f", effort {facts['effort']:g}" if facts.get("effort") else "")


if __name__ == "__main__":
    main()
