"""Sequences of different lengths: jagged nested tensors and packed attention; the strided layout is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torch_pjrt.errors import UnsupportedOpError

DEVICE = "pjrt"
LENGTHS = (2, 5, 4)


def _packed(width: int, seed: int, heads: int = 3) -> torch.Tensor:
    return torch.randn(sum(LENGTHS), heads, width, generator=torch.Generator().manual_seed(seed))


def _offsets(device: str, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return F.pad(torch.tensor(LENGTHS).cumsum(0), (1, 0)).to(dtype).to(device)


def _one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    each = zip(*(x.split(LENGTHS) for x in (q, k, v)), strict=True)
    outs = [F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in three), is_causal=causal) for three in each]
    return torch.cat([o.transpose(0, 1) for o in outs])


def _jagged(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    q, k, v = (torch.nested.nested_tensor_from_jagged(x, _offsets(DEVICE)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).values()  # type: ignore[no-any-return]


def _varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    at = _offsets(DEVICE, torch.int32)
    window = (-1, 0) if causal else (-1, -1)
    return varlen.varlen_attn(q, k, v, at, at, max(LENGTHS), max(LENGTHS), window_size=window)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("run", "width", "causal"), [(_jagged, 8, False), (_jagged, 5, True), (_varlen, 8, True)])
def test_attention_over_packed_sequences(run: Callable[..., torch.Tensor], width: int, causal: bool) -> None:
    torch.pjrt.reset_stats()
    results = []
    for function, device in ((_one_by_one, "cpu"), (run, DEVICE)):
        leaves = [_packed(width, seed).to(device).requires_grad_() for seed in range(3)]
        out = function(*leaves, causal)
        results.append([out.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(out.sin().sum(), leaves))])
    for got, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not torch.pjrt.stats()["fallbacks"]


class _Block(torch.nn.Module):
    """A small transformer block over jagged batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.qkv = torch.nn.Linear(8, 24)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, [2, 4]).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        return x + self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


def test_a_block_trains_on_jagged_batches() -> None:
    torch.manual_seed(0)
    block = _Block()
    batch = [torch.randn(n, 8) for n in LENGTHS]
    results = []
    for device in ("cpu", DEVICE):
        block = block.to(device)
        block.zero_grad(set_to_none=True)
        if device == "cpu":  # one sequence at a time
            out = torch.cat([block(x.unsqueeze(0)).squeeze(0) for x in batch])
        else:
            out = block(torch.nested.nested_tensor(batch, layout=torch.jagged, device=device)).values()
        out.square().sum().backward()
        grads = [p.grad.cpu().clone() for p in block.parameters() if p.grad is not None]
        results.append([out.detach().cpu(), *grads])
    assert len(results[1]) == 9
    for got, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_jagged_to_padded_and_back() -> None:
    parts = [torch.randn(n, 3) for n in LENGTHS]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged, device=DEVICE)
    torch.pjrt.reset_stats()
    padded = jagged.to_padded_tensor(-1.0)
    assert torch.equal(padded.cpu(), torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-1.0))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(jagged.unbind(), parts, strict=True))
    torch.testing.assert_close(jagged.sum(1).cpu(), torch.stack([p.sum(0) for p in parts]))
    assert not torch.pjrt.stats()["fallbacks"]


def test_the_strided_layout_is_refused() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], device=DEVICE)
    with pytest.raises(UnsupportedOpError, match="jagged"):
        nested + nested


def _masks() -> dict[str, Any]:
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    return {
        "none": {},
        "padding": {"src_key_padding_mask": padding},
        "causal": {"mask": torch.ones(5, 5, dtype=torch.bool).triu(1)},
    }


@pytest.mark.parametrize("kind", ["none", "padding", "causal"])
def test_the_fast_path_of_transformer_encoders(kind: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", norm_first=kind == "causal")
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, masks = torch.randn(3, 5, 8), _masks()[kind]
    with torch.no_grad():
        want = model(x, **masks)
        torch.pjrt.reset_stats()
        got = model.to(DEVICE)(x.to(DEVICE), **{k: m.to(DEVICE) for k, m in masks.items()})
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert not torch.pjrt.stats()["fallbacks"]


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("hooked", [False, True])
def test_transformer_encoders_leave_zeros_where_they_were_padded(hooked: bool, aligned: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    if hooked:
        model.layers[0].linear1.register_forward_hook(lambda *_: None)
    x, padding = torch.randn(3, 5, 8), _masks()["padding"]["src_key_padding_mask"]
    padding[1, 0] = not aligned
    with torch.no_grad():
        want = model(x, src_key_padding_mask=padding)
        got = model.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE))
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert type(got) is torch.Tensor and bool((got.cpu()[padding] == 0).all()) is aligned


def test_a_hook_that_mixes_the_positions_of_a_padded_batch_is_refused() -> None:
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    model.layers[0].linear1.register_forward_hook(lambda module, given, out: out.softmax(1))
    masks = {k: m.to(DEVICE) for k, m in _masks()["padding"].items()}
    with torch.no_grad(), pytest.raises(UnsupportedOpError, match="enable_nested_tensor=False"):
        model.to(DEVICE)(torch.randn(3, 5, 8, device=DEVICE), **masks)


def test_multi_head_attention_gives_its_weights_when_asked() -> None:
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        want, weights = attention(x, x, x)
        attention.to(DEVICE)
        got, ours = attention(*[x.to(DEVICE)] * 3)
        nothing = attention(*[x.to(DEVICE)] * 3, need_weights=False)[1]
    torch.testing.assert_close((got.cpu(), ours.cpu()), (want, weights), rtol=1e-4, atol=1e-5)
    assert nothing is None
