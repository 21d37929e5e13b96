"""One token of generation as a program: a causal model of transformers with its static key-value cache as arguments.

Owns how the cache is taken apart into tensors. The cache's tensors are overwritten in place, as generate() does it.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.errors import InvalidOperandError


class OneToken(torch.nn.Module):
    """forward(input_ids [batch, 1], position, *keys_and_values) -> logits of the next token."""

    def __init__(self, model: Any, length: int) -> None:
        super().__init__()
        self.model = model
        self.length = length

    def forward(self, input_ids: torch.Tensor, position: torch.Tensor, *cache: torch.Tensor) -> torch.Tensor:
        held = _cache(self.model.config, self.length)
        for layer, keys, values in zip(held.layers, cache[::2], cache[1::2], strict=True):
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.device, layer.dtype = keys.device, keys.dtype
            layer.batch_size, layer.num_heads = keys.shape[:2]
            layer.k_head_dim, layer.v_head_dim = keys.shape[-1], values.shape[-1]
            layer.cumulative_length = position.clone()
        result = self.model(input_ids, past_key_values=held, use_cache=True, position_ids=position.reshape(1, 1))
        return result.logits[:, -1]


def one_token(model: Any, *, batch: int, length: int) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """A causal language model as a module that generates one token against a cache of `length` tokens, and its arguments."""
    config = model.config.get_text_config()
    if getattr(config, "is_encoder_decoder", False) or not hasattr(model, "generate"):
        raise InvalidOperandError(
            f"{type(model).__name__} does not generate token by token from a cache of its own",
            todo='Give a function for --model that returns the model and the arguments of one token, with mode "infer".',
        )
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    dtype = next(model.parameters()).dtype
    shape = (batch, heads, length, width)
    cache = [torch.empty(shape, dtype=dtype, device="meta") for _ in range(2 * config.num_hidden_layers)]
    ids = torch.empty(batch, 1, dtype=torch.long, device="meta")
    return OneToken(model, length), (ids, torch.empty((), dtype=torch.long, device="meta"), *cache)


def _cache(config: Any, length: int) -> Any:
    from transformers import StaticCache

    return StaticCache(config=config, max_cache_len=length)
