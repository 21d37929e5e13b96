"""Trains a small GPT on text that ships with Python (the documentation strings of its library), character by character.

    python examples/train_gpt.py [--device pjrt] [--steps 300]

Prints the loss on text kept aside, what the model writes, and what the device compiled.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import math
import pathlib
import sysconfig
import time

import torch
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.nn import functional as F

console = Console(width=100)


@dataclasses.dataclass(frozen=True)
class Size:
    """The model's size."""

    characters: int
    length: int = 96
    width: int = 128
    heads: int = 4
    layers: int = 4


class Block(nn.Module):
    """Causal attention and a feed-forward part, each after a layer norm."""

    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.feed = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    """Characters and positions in, blocks, logits of the next character out; the embedding is also the head."""

    def __init__(self, size: Size):
        super().__init__()
        self.size = size
        self.characters = nn.Embedding(size.characters, size.width)
        self.positions = nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.characters, bias=False)
        self.head.weight = self.characters.weight
        nn.init.normal_(self.characters.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.characters(tokens) + self.positions(places))))

    @torch.no_grad()
    def write(self, start: torch.Tensor, count: int) -> torch.Tensor:
        """Sample characters after `start` (length,). The window has one fixed shape, so one program serves them all."""
        window = F.pad(start, (self.size.length - len(start), 0))
        written = []
        for _ in range(count):
            logits = self(window[None])[0, -1]
            token = torch.multinomial(F.softmax(logits / 0.8, -1), 1)
            window = torch.cat((window[1:], token))
            written.append(token)
        return torch.cat(written)


def text(limit: int = 400_000) -> str:
    """Documentation strings of the standard library's modules, one after the other."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    parts: list[str] = []
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)]
        parts += [found for found in map(ast.get_docstring, nodes) if found]
        if sum(map(len, parts)) > limit:
            break
    return "".join(character for character in "\n\n".join(parts)[:limit] if character.isascii())


def windows(tokens: torch.Tensor, size: Size, batch: int, generator: torch.Generator) -> torch.Tensor:
    """A batch of random windows, one character longer than the model reads: (batch, length + 1)."""
    starts = torch.randint(len(tokens) - size.length - 1, (batch, 1), generator=generator)
    return tokens[starts + torch.arange(size.length + 1)]


def loss_of(model: GPT, batch: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the next character."""
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="pjrt")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    device = options.device

    corpus = text()
    alphabet = sorted(set(corpus))
    code = {character: number for number, character in enumerate(alphabet)}
    tokens = torch.tensor([code[character] for character in corpus])
    train_tokens, test_tokens = tokens[:-20_000], tokens[-20_000:]

    torch.manual_seed(0)
    size = Size(characters=len(alphabet))
    model = GPT(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    generator = torch.Generator().manual_seed(0)

    started = time.perf_counter()
    for step in track(range(options.steps), description=f"training on {device}", console=console):
        loss = loss_of(model, windows(train_tokens, size, options.batch, generator).to(device))
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            console.print(f"step {step:4d}  loss {loss.item():.3f}")
    seconds = time.perf_counter() - started

    with torch.no_grad():
        kept_aside = loss_of(model, windows(test_tokens, size, 64, generator).to(device)).item()
    start = torch.tensor([code[character] for character in "Return the "], device=device)
    written = "".join(alphabet[number] for number in model.write(start, 160).tolist())
    console.print(f"text kept aside: loss {kept_aside:.3f} ({kept_aside / math.log(2):.2f} bits a character)")
    console.print(f"{options.steps / seconds:.1f} steps per second, first compile included")
    console.print(f"[bold]Return the [/]{written}", markup=True)
    module = getattr(torch, device, None)
    if hasattr(module, "stats"):
        stats = module.stats()
        console.print(f"compiles {stats['compiles']}, fallbacks {stats['fallbacks'] or 'none'}")


if __name__ == "__main__":
    main()
