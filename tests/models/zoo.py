"""Every model that is tested: tiny, randomly initialised, dropout off, with one batch of inputs.

`build(name)` gives (model, inputs); the same name gives the same weights and inputs every time. The sizes are small so
that what is tested is which operators a model uses and how they fit together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn

from benchmarks.models import resnet18
from tests.models.networks import Classifier, Recurrent, convnext, efficientnet

Inputs = dict[str, Any]
Entry = tuple[nn.Module, Inputs]

VOCABULARY = 64
DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tokens(batch: int = 2, length: int = 12) -> torch.Tensor:
    """Token ids, none of them special."""
    return torch.randint(3, VOCABULARY, (batch, length))


def padded(ids: torch.Tensor, left: bool = False) -> torch.Tensor:
    """A mask that hides three positions of the last sample."""
    mask = torch.ones_like(ids)
    mask[-1, slice(0, 3) if left else slice(-3, None)] = 0
    return mask


def language_model(model: nn.Module) -> Entry:
    """Next-token prediction on a batch with padding."""
    ids = tokens()
    mask = padded(ids)
    return model, {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
        "use_cache": False,
    }


def bert() -> Entry:
    config = hf.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    ids = tokens()
    return hf.BertForSequenceClassification(config), {
        "input_ids": ids,
        "attention_mask": padded(ids),
        "labels": torch.tensor([0, 2]),
    }


def gpt2() -> Entry:
    config = hf.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = hf.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # without it transformers logs a warning, which Dynamo has no graph of
    return language_model(model)


def llama() -> Entry:
    return language_model(hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER)))


def qwen3() -> Entry:
    return language_model(hf.Qwen3ForCausalLM(hf.Qwen3Config(**DECODER, head_dim=8)))


def gemma3() -> Entry:
    layers = ["sliding_attention", "full_attention"]
    config = hf.Gemma3TextConfig(**DECODER, head_dim=8, sliding_window=4, layer_types=layers, query_pre_attn_scalar=8)
    return language_model(hf.Gemma3ForCausalLM(config))


def mixtral() -> Entry:
    config = hf.MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
    return language_model(hf.MixtralForCausalLM(config))


def t5() -> Entry:
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    ids = tokens()
    return hf.T5ForConditionalGeneration(config), {
        "input_ids": ids,
        "attention_mask": padded(ids),
        "labels": tokens(2, 8),
        "use_cache": False,
    }


VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 4,
}


def vit() -> Entry:
    config = hf.ViTConfig(**VISION, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=5)
    return hf.ViTForImageClassification(config), {
        "pixel_values": torch.randn(2, 3, 16, 16),
        "labels": torch.tensor([1, 4]),
    }


def clip() -> Entry:
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 16,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    ids = tokens(3)
    ids[:, -1] = 2
    return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16)), {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(3, 3, 16, 16),
        "return_loss": True,
    }


def whisper() -> Entry:
    config = hf.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=8,
        max_target_positions=16,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
    )
    return hf.WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(2, 8, 16),
        "labels": tokens(2, 8),
        "use_cache": False,
    }


def image_classifier(body: nn.Module, size: int = 32) -> Entry:
    return Classifier(body), {"x": torch.randn(4, 3, size, size), "labels": torch.randint(0, 10, (4,))}


def token_classifier(kind: type[nn.LSTM] | type[nn.GRU]) -> Entry:
    return Classifier(Recurrent(kind)), {"x": torch.randint(0, 50, (4, 5)), "labels": torch.randint(0, 5, (4,))}


MODELS: dict[str, Callable[[], Entry]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "mixtral": mixtral,
    "t5": t5,
    "vit": vit,
    "clip": clip,
    "whisper": whisper,
    "resnet18": lambda: image_classifier(resnet18(width=8), 64),
    "convnext": lambda: image_classifier(convnext()),
    "efficientnet": lambda: image_classifier(efficientnet()),
    "lstm": lambda: token_classifier(nn.LSTM),
    "gru": lambda: token_classifier(nn.GRU),
}


def build(name: str) -> Entry:
    """The model, in training mode on the CPU, and its inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        return model.train(), inputs


def placed(inputs: Inputs, *where: Any) -> Inputs:
    """The inputs on a device or in a dtype; integer inputs keep theirs."""
    out = {}
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor):
            keep = [w for w in where if not isinstance(w, torch.dtype) or value.is_floating_point()]
            value = value.to(*keep) if keep else value
        out[key] = value
    return out
