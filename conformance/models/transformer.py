"""Models of transformers: small configurations with random weights, one of each family.

Owns the table: which class, the configuration's facts, and which kind of inputs. A fact that most families share under one
name is in SHARED; a family names only what is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

WORDS = 64
LENGTH = 16
SHARED: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODER = {**SHARED, "num_key_value_heads": 2}
ENCODER_DECODER: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
IMAGE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 5,
}
SPEECH: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "ctc_zero_infinity": True,
}


@dataclass(frozen=True, slots=True)
class Text:
    """A transformers model: family (the class is family + head), the kind of its inputs, its configuration's facts."""

    family: str
    head: str = "ForCausalLM"
    inputs: str = "words"
    facts: dict[str, Any] = field(default_factory=dict)


def _decoder(family: str, head: str = "ForCausalLM", **facts: Any) -> Text:
    return Text(family, head, "words", {**DECODER, **facts})


def _encoder(family: str, head: str = "ForMaskedLM", **facts: Any) -> Text:
    return Text(family, head, "words", {**SHARED, **facts})


def _own(family: str, head: str = "ForCausalLM", inputs: str = "words", **facts: Any) -> Text:
    special = (
        {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} if inputs == "words" else {}
    )
    return Text(family, head, inputs, {**special, **facts})


def _pictures(family: str, head: str = "ForImageClassification", **facts: Any) -> Text:
    return Text(family, head, "pictures", {**IMAGE, **facts})


_TABLE = (
    _encoder("Bert"),
    _encoder("Roberta", max_position_embeddings=80),
    _encoder("Albert", embedding_size=16),
    _encoder("Electra", embedding_size=16),
    _own("DistilBert", "ForMaskedLM", dim=32, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=64),
    _encoder("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8),
    _encoder("MPNet"),
    _encoder(
        "ModernBert", "ForMaskedLM", cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=2, local_attention=8
    ),
    _encoder("ConvBert", embedding_size=32, conv_kernel_size=3),
    _encoder("SqueezeBert", embedding_size=32),
    _encoder("FNet"),
    Text(
        "Nystromformer",
        "ForMaskedLM",
        "unmasked words",
        {**SHARED, "num_landmarks": 4, "segment_means_seq_len": LENGTH},
    ),
    _encoder("Longformer", attention_window=8, sep_token_id=2),
    _encoder("BigBird", attention_type="original_full"),
    _own("Funnel", "ForMaskedLM", d_model=32, n_head=4, d_head=8, d_inner=64, block_sizes=[1, 1], num_decoder_layers=1),
    _own("XLNet", "LMHeadModel", "words", d_model=32, n_layer=2, n_head=4, d_inner=64),
    _own("GPT2", "LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    _own(
        "GPTNeo",
        hidden_size=32,
        num_layers=2,
        attention_types=[[["global", "local"], 1]],
        num_heads=4,
        window_size=8,
        max_position_embeddings=64,
    ),
    _own("GPTJ", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
    _encoder("GPTNeoX", "ForCausalLM"),
    _own(
        "OPT",
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    ),
    _own("Bloom", hidden_size=32, n_layer=2, n_head=4),
    _own("Mpt", d_model=32, n_layers=2, n_heads=4, max_seq_len=64, expansion_ratio=2),
    _own("Falcon", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=False),
    _own("CTRL", "LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=64, dff=64),
    _decoder("Llama"),
    _decoder("Mistral", sliding_window=8, head_dim=8),
    _decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    _decoder("Qwen2"),
    _decoder("Qwen3", head_dim=8),
    _decoder(
        "Qwen3Moe", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, decoder_sparse_step=1
    ),
    _decoder("Gemma", head_dim=8),
    _decoder("Gemma2", head_dim=8, sliding_window=8, query_pre_attn_scalar=8),
    _decoder("Phi"),
    _decoder("Phi3"),
    _decoder("Olmo2"),
    _decoder("StableLm"),
    _decoder("Starcoder2", sliding_window=8),
    _decoder("Cohere"),
    _decoder("Granite"),
    _decoder(
        "DeepseekV3",
        num_key_value_heads=4,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
        moe_intermediate_size=32,
        first_k_dense_replace=1,
    ),
    _decoder("GptOss", head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8),
    _own("Mamba", hidden_size=32, state_size=8, num_hidden_layers=2),
    _own(
        "Mamba2", hidden_size=32, state_size=8, num_hidden_layers=2, num_heads=8, head_dim=8, n_groups=2, chunk_size=8
    ),
    _decoder(
        "RecurrentGemma",
        num_key_value_heads=1,
        lru_width=32,
        attention_window_size=8,
        block_types=["recurrent", "attention"],
    ),
    _own("Rwkv", hidden_size=32, attention_hidden_size=32, num_hidden_layers=2, context_length=64),
    _own(
        "T5",
        "ForConditionalGeneration",
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    ),
    Text("Bart", "ForConditionalGeneration", "words", {**ENCODER_DECODER, "forced_eos_token_id": 2}),
    Text("Pegasus", "ForConditionalGeneration", "words", ENCODER_DECODER),
    Text("MBart", "ForConditionalGeneration", "words", ENCODER_DECODER),
    Text(
        "LED",
        "ForConditionalGeneration",
        "words",
        {
            **ENCODER_DECODER,
            "attention_window": 8,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
        },
    ),
    Text(
        "Whisper",
        "ForConditionalGeneration",
        "sound",
        {**ENCODER_DECODER, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32},
    ),
    Text("Wav2Vec2", "ForCTC", "waves", SPEECH),
    Text("Hubert", "ForCTC", "waves", SPEECH),
    _pictures("ViT"),
    _pictures("DeiT"),
    _pictures("Beit"),
    _pictures("Dinov2"),
    _own(
        "Swin",
        "ForImageClassification",
        "pictures",
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 4],
        window_size=4,
        num_labels=5,
    ),
    _own(
        "Segformer",
        "ForSemanticSegmentation",
        "pixels",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[2, 4],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
        num_labels=5,
    ),
    _own(
        "MobileViT",
        "ForImageClassification",
        "pictures",
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 48],
        num_attention_heads=2,
        num_labels=5,
    ),
    Text("Yolos", "Model", "plain pictures", {**IMAGE, "image_size": [32, 32], "num_detection_tokens": 4}),
    Text("CLIP", "Model", "pairs", {"text_config": SHARED, "vision_config": IMAGE, "projection_dim": 16}),
    Text("Siglip", "Model", "pairs", {"text_config": SHARED, "vision_config": IMAGE}),
)
TEXT: dict[str, Text] = {f"transformers/{t.family}": t for t in _TABLE}


def build(text: Text) -> tuple[nn.Module, dict[str, Any], Callable[[Any], torch.Tensor]]:
    """The model, its inputs, and the loss of what it gives (its own, or a cross entropy)."""
    import transformers

    config = getattr(transformers, f"{text.family}Config")(**text.facts)
    quiet(config)
    model = getattr(transformers, text.family + text.head)(config)
    if text.head == "LMHeadModel":
        model.loss_type = "ForCausalLM"  # without it transformers logs a warning, which Dynamo has no graph of
    side = text.facts.get("image_size", 32)
    return model, _INPUTS[text.inputs](side if isinstance(side, int) else side[0]), _loss


def quiet(config: Any) -> None:
    """No dropout and no masking of the input in training: what is drawn at random cannot be compared with another device."""
    for name, value in vars(config).items():
        if hasattr(value, "to_diff_dict"):
            quiet(value)
        elif isinstance(value, float) and ("drop" in name or name.startswith("mask_")):
            setattr(config, name, 0.0)
    if hasattr(config, "apply_spec_augment"):
        config.apply_spec_augment = False


def _loss(result: Any) -> torch.Tensor:
    if getattr(result, "loss", None) is not None:
        return result.loss  # type: ignore[no-any-return]
    scores = getattr(result, "logits", None)
    scores = result[0] if scores is None else scores
    return scores.square().mean()  # type: ignore[no-any-return]


def _ids(batch: int = 2, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, WORDS, (batch, length))


def _words(side: int) -> dict[str, Any]:
    ids = _ids()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def _unmasked(side: int) -> dict[str, Any]:
    ids = _ids()
    return {"input_ids": ids, "labels": ids}


def _sound(side: int) -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 32), "labels": _ids(2, 8)}


def _waves(side: int) -> dict[str, Any]:
    return {"input_values": torch.randn(2, 800), "labels": torch.randint(1, 30, (2, 4))}


def _plain_pictures(side: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(4, 3, side, side)}


def _labelled_pictures(side: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(4, 3, side, side), "labels": torch.arange(4)}


def _pixels(side: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, side, side), "labels": torch.randint(0, 5, (2, side, side))}


def _pairs(side: int) -> dict[str, Any]:
    ids = _ids(3)
    ids[:, -1] = 2
    return {"input_ids": ids, "pixel_values": torch.randn(3, 3, side, side), "return_loss": True}


_INPUTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "words": _words,
    "unmasked words": _unmasked,
    "sound": _sound,
    "waves": _waves,
    "pictures": _labelled_pictures,
    "plain pictures": _plain_pictures,
    "pixels": _pixels,
    "pairs": _pairs,
}
