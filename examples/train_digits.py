"""Trains a small vision transformer on scikit-learn's digits, on the pjrt device and on the CPU, and compares.

    python examples/train_digits.py [--epochs 12] [--device pjrt]

The loop is the usual one: DataLoader, AdamW, autocast, a learning rate schedule, a progress bar. Only the device's name
differs between the two runs. Exits with 1 when an op fell back to the CPU or when the two trainings do not agree.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
import sys
import tempfile
import time

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

console = Console(width=100)


@dataclasses.dataclass(frozen=True)
class Size:
    """The model's size: images of 8 x 8 become 16 patches of 2 x 2."""

    patch: int = 2
    width: int = 64
    heads: int = 4
    layers: int = 4
    classes: int = 10


class Block(nn.Module):
    """Attention and a feed-forward part, each after a layer norm."""

    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.feed = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches by a convolution, learned positions, blocks, and the mean of the tokens into a classifier."""

    def __init__(self, size: Size | None = None):
        super().__init__()
        size = size or Size()
        self.patches = nn.Conv2d(1, size.width, size.patch, stride=size.patch)
        self.positions = nn.Parameter(0.02 * torch.randn(1, (8 // size.patch) ** 2, size.width))
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(1))


@dataclasses.dataclass
class Outcome:
    """What one training gave."""

    device: str
    losses: list[float]
    accuracy: float
    predictions: torch.Tensor
    first_step: float
    steps_per_second: float
    model: nn.Module


def data() -> tuple[TensorDataset, TensorDataset]:
    """Training and test images (n, 1, 8, 8), scaled to mean 0 and deviation 1, with labels."""
    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=360, random_state=0, stratify=labels)
    return tuple(
        TensorDataset((torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) - 4.9) / 6, torch.tensor(y))
        for x, y in ((x_train, y_train), (x_test, y_test))
    )


def train(device: str, *, epochs: int, batch: int, seed: int = 0) -> Outcome:
    """Train on a device. The same seed gives the same weights and the same order of the data on every device."""
    train_set, test_set = data()
    torch.manual_seed(seed)
    model = VisionTransformer().to(device)
    order = torch.Generator().manual_seed(seed)
    loader = DataLoader(train_set, batch_size=batch, shuffle=True, drop_last=True, generator=order)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    total = epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, total))

    losses: list[torch.Tensor] = []
    started = time.perf_counter()
    first_step = 0.0
    for _ in track(range(epochs), description=f"training on {device:<4}", console=console):
        model.train()
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(images), labels, label_smoothing=0.05)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            if len(losses) == 1:
                loss.item()
                first_step = time.perf_counter() - started
        loss.item()  # wait once an epoch, so that the progress bar tells the truth
    seconds = time.perf_counter() - started - first_step

    images, labels = test_set.tensors
    predictions = predict(model, images.to(device))
    accuracy = (predictions.argmax(1) == labels).float().mean().item()
    return Outcome(
        device=device,
        losses=[float(loss) for loss in losses],
        accuracy=accuracy,
        predictions=predictions,
        first_step=first_step,
        steps_per_second=(total - 1) / seconds,
        model=model,
    )


def warmup_cosine(step: int, total: int, warmup: int = 10) -> float:
    """A linear rise over the first steps, then half a cosine down to 2 %."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.02 + 0.49 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


@torch.no_grad()
def predict(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Logits on the CPU, in float32."""
    model.eval()
    return model(images).float().cpu()


def through_checkpoint(outcome: Outcome) -> torch.Tensor:
    """Save the trained weights, load them in plain torch on the CPU, and predict the test images again."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "digits.pt"
        torch.save(outcome.model.state_dict(), path)
        model = VisionTransformer()
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return predict(model, data()[1].tensors[0])


def show(ours: Outcome, reference: Outcome, reloaded: torch.Tensor, stats: dict, seconds: float) -> bool:
    """Print the table. Gives whether everything agrees."""
    difference = max(abs(a - b) for a, b in zip(ours.losses, reference.losses, strict=True))
    same = bool((reloaded.argmax(1) == ours.predictions.argmax(1)).all())
    drift = (reloaded - ours.predictions).abs().max().item()
    fallbacks = sum(stats["fallbacks"].values())

    table = Table("", ours.device, reference.device, title="digits, 4-layer vision transformer, bfloat16 autocast")
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("test accuracy", f"{ours.accuracy:.2%}", f"{reference.accuracy:.2%}")
    table.add_row("loss, first step", f"{ours.losses[0]:.4f}", f"{reference.losses[0]:.4f}")
    table.add_row("loss, last step", f"{ours.losses[-1]:.4f}", f"{reference.losses[-1]:.4f}")
    table.add_row("largest loss difference", f"{difference:.4f}", "")
    table.add_row("steps per second", f"{ours.steps_per_second:.1f}", f"{reference.steps_per_second:.1f}")
    table.add_row("first step, seconds", f"{ours.first_step:.2f}", f"{reference.first_step:.2f}")
    table.add_row("compiles", f"{stats['compiles']} ({stats['compile_seconds']:.1f} s)", "")
    table.add_row("fallbacks to the CPU", str(fallbacks), "")
    table.add_row("checkpoint in plain torch", "same predictions" if same else "DIFFERENT PREDICTIONS", "")
    table.add_row("  largest logit difference", f"{drift:.1e}", "")
    console.print(table)
    console.print(f"{len(ours.losses)} steps on each device; {seconds:.0f} s in all")

    problems = {
        f"ops fell back to the CPU: {stats['fallbacks']}": fallbacks,
        "the losses of the two devices differ by more than bfloat16 explains": not difference < 0.35,
        "the first losses differ": not abs(ours.losses[0] - reference.losses[0]) < 0.02,
        "the accuracies differ by more than three points": not abs(ours.accuracy - reference.accuracy) < 0.03,
        "the checkpoint predicts something else in plain torch": not same,
    }
    for text in (text for text, wrong in problems.items() if wrong):
        console.print(f"[red]failed:[/] {text}")
    return not any(problems.values())


def main() -> None:
    """Train twice, compare, and exit with 1 when something does not agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="pjrt")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=48)
    options = parser.parse_args()

    started = time.perf_counter()
    module = getattr(torch, options.device, None)
    ours = train(options.device, epochs=options.epochs, batch=options.batch)
    stats = module.stats() if hasattr(module, "stats") else {"fallbacks": {}, "compiles": 0, "compile_seconds": 0.0}
    reference = train("cpu", epochs=options.epochs, batch=options.batch)
    agrees = show(ours, reference, through_checkpoint(ours), stats, time.perf_counter() - started)
    sys.exit(0 if agrees else 1)


if __name__ == "__main__":
    main()
