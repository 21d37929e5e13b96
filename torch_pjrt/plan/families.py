"""Models by name or by configuration file, on the meta device, with the arguments of a workload.

Owns the table of built-in models, the reading of Hugging Face configuration files and of `pkg.module:function`, and what each
workload feeds a model. Nothing is downloaded and no weight is ever made.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from torch_pjrt.plan.decoders import Decoder, DecoderConfig
from torch_pjrt.plan.speech import Whisper, WhisperConfig
from torch_pjrt.plan.vision import ResNet50, UNet
from torch_pjrt.plan.workload import MissingExtraError, ModelError, Workload

Reader = Callable[..., tuple[Any, Any, dict[str, Any]]]

DECODERS = {
    "gpt2": DecoderConfig(12, 768, 12, 12, 3072, 50257, "gpt2", tied=True),
    "llama2-7b": DecoderConfig(32, 4096, 32, 32, 11008, 32000),
    "llama2-70b": DecoderConfig(80, 8192, 64, 8, 28672, 32000),
    "llama3-8b": DecoderConfig(32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": DecoderConfig(80, 8192, 64, 8, 28672, 128256),
    "mixtral-8x7b": DecoderConfig(32, 4096, 32, 8, 14336, 32000, experts=8),
    "tiny": DecoderConfig(2, 64, 4, 2, 128, 512),
}
SPEECH = {"whisper-large": WhisperConfig(), "whisper-tiny": WhisperConfig(4, 384, 6)}
IMAGES = ("resnet50", "unet")
BUILT_IN = (*DECODERS, *SPEECH, *IMAGES)


@dataclass(slots=True)
class Subject:
    """A model and what it is called with, all without values. unit: what is counted ("token", "image", "sample").

    units: of one step. layers, hidden, heads, kv_heads, experts: of a stack of equal blocks, 0 where unknown. shorter: the same
    with so many layers. stream: elements that enter a block. cache_bytes: of keys and values that are kept; keys_values: of
    those that a pass makes.
    """

    name: str
    model: Any
    args: list[Any]
    kwargs: dict[str, Any]
    unit: str
    units: int
    layers: int = 0
    hidden: int = 0
    stream: int = 0
    heads: int = 0
    kv_heads: int = 0
    experts: int = 0
    experts_per_token: int = 0
    cache_bytes: int = 0
    keys_values: int = 0
    shorter: Callable[[int], Subject] | None = None
    optimizer: Any = None
    source: str = ""


def subject(model: str, workload: Workload, reader: Reader | None = None) -> Subject:
    """The model of that name, configuration file, or `pkg.module:function`. Raises ModelError.

    reader: makes (model, args, kwargs) of a configuration file that is none of ours (see integrations/hf_config).
    """
    workload = replace(workload, batch=workload.together, accumulate=1)
    if model in DECODERS:
        return _decoder(model, DECODERS[model], workload)
    if model in SPEECH:
        return _speech(model, SPEECH[model], workload)
    if model in IMAGES:
        return _images(model, workload)
    path = Path(model)
    if path.suffix == ".json" or path.is_dir():
        return _configured(path / "config.json" if path.is_dir() else path, workload, reader)
    if ":" in model:
        return _imported(model, workload)
    close = ", ".join(BUILT_IN)
    raise ModelError(
        f"there is no model {model!r}: give one of {close}, a Hugging Face config.json, or pkg.module:function"
    )


def _ids(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.long, device="meta")


def _weights(model: torch.nn.Module, workload: Workload) -> torch.nn.Module:
    return model.to(workload.weight_dtype)


def _decoder(name: str, config: DecoderConfig, workload: Workload) -> Subject:
    if config.style == "gpt2" and workload.sequence > config.positions:
        raise ModelError(f"{name} has {config.positions} positions, fewer than --sequence {workload.sequence}")
    mode = {"batch-infer": "prefill"}.get(workload.kind, workload.kind)
    with torch.device("meta"):
        model = _weights(Decoder(config, workload.compute_dtype, mode), workload)
    cached = 2 * config.layers * workload.batch * config.kv_heads * workload.sequence * config.head
    args: list[Any] = [_ids(workload.batch, 1 if mode == "decode" else workload.sequence)]
    if mode == "decode":
        shape = (workload.batch, config.kv_heads, workload.sequence, config.head)
        args += [torch.empty(shape, dtype=workload.compute_dtype, device="meta") for _ in range(2 * config.layers)]
    shorter = (lambda n: _decoder(name, replace(config, layers=n), workload)) if config.layers > 1 else None
    size = int(cached * workload.compute_dtype.itemsize)
    return Subject(
        name,
        model,
        args,
        {},
        "token",
        workload.batch * (1 if mode == "decode" else workload.sequence),
        config.layers,
        config.hidden,
        workload.batch * (1 if mode == "decode" else workload.sequence) * config.hidden,
        config.heads,
        config.kv_heads,
        config.experts,
        config.experts_per_token if config.experts else 0,
        0 if mode == "train" else size,
        0 if mode == "decode" else size,
        shorter,
    )


def _speech(name: str, config: WhisperConfig, workload: Workload) -> Subject:
    if workload.sequence > config.text:
        raise ModelError(f"{name} writes at most {config.text} tokens, fewer than --sequence {workload.sequence}")
    with torch.device("meta"):
        model = _weights(Whisper(config, workload.compute_dtype, workload.kind), workload)
    dtype, head = workload.compute_dtype, config.hidden // config.heads
    lengths = (workload.sequence, workload.sequence, config.frames // 2, config.frames // 2)
    caches = [
        torch.empty(workload.batch, config.heads, n, head, dtype=dtype, device="meta")
        for _ in range(config.layers)
        for n in lengths
    ]
    size = sum(c.nbytes for c in caches)
    if workload.kind == "decode":
        args, units = [_ids(workload.batch, 1), *caches], workload.batch
    else:
        mels = torch.empty(workload.batch, config.mels, config.frames, dtype=dtype, device="meta")
        args, units = [_ids(workload.batch, workload.sequence), mels], workload.batch * workload.sequence
    shorter = (lambda n: _speech(name, replace(config, layers=n), workload)) if config.layers > 1 else None
    cached = 0 if workload.kind == "train" else size
    rows = 1 if workload.kind == "decode" else workload.sequence + config.frames // 2
    stream = workload.batch * rows * config.hidden
    sizes = (config.heads, config.heads, 0, 0, cached, 0, shorter)
    return Subject(name, model, args, {}, "token", units, config.layers, config.hidden, stream, *sizes)


def _images(name: str, workload: Workload) -> Subject:
    if workload.kind == "decode":
        raise ModelError(f"{name} makes no tokens one by one: --workload decode is for language models")
    train, dtype, n = workload.kind == "train", workload.compute_dtype, workload.batch
    with torch.device("meta"):
        if name == "resnet50":
            model: torch.nn.Module = ResNet50(dtype, train)
            args = [torch.empty(n, 3, 224, 224, dtype=dtype)]
        else:
            model = UNet(dtype, train)
            shapes = ((n, 4, 64, 64), (n, 77, 768), (n, 320))
            args = [torch.empty(s, dtype=dtype) for s in shapes]
    optimizer = (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)) if name == "resnet50" else None
    unit = "image" if name == "resnet50" else "denoising step"
    return Subject(name, _weights(model, workload), args, {}, unit, n, optimizer=optimizer)


_LLAMA = ("llama", "mistral", "qwen2", "mixtral", "smollm3")


def _configured(path: Path, workload: Workload, reader: Reader | None) -> Subject:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the configuration {path}: {error}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelError(f"{path} has no model_type: it is not a Hugging Face configuration")
    kind, name = config["model_type"], config.get("_name_or_path") or path.resolve().parent.name or path.stem
    try:
        if kind in _LLAMA:
            return _decoder(name, _llama(config), workload)
        if kind == "gpt2":
            return _decoder(name, _gpt2(config), workload)
        if kind == "whisper":
            return _speech(name, _whisper(config), workload)
    except KeyError as error:
        raise ModelError(f"{path} lacks {error}") from error
    return _other(name, path, kind, workload, reader)


def _llama(config: dict[str, Any]) -> DecoderConfig:
    heads = config["num_attention_heads"]
    return DecoderConfig(
        config["num_hidden_layers"],
        config["hidden_size"],
        heads,
        config.get("num_key_value_heads") or heads,
        config["intermediate_size"],
        config["vocab_size"],
        experts=config.get("num_local_experts", 0),
        experts_per_token=config.get("num_experts_per_tok", 2),
        tied=bool(config.get("tie_word_embeddings", False)),
        head_size=config.get("head_dim") or 0,
        qkv_bias=config["model_type"] == "qwen2",
    )


def _gpt2(config: dict[str, Any]) -> DecoderConfig:
    hidden, heads = config["n_embd"], config["n_head"]
    inner = config.get("n_inner") or 4 * hidden
    positions = config.get("n_positions", 1024)
    return DecoderConfig(
        config["n_layer"], hidden, heads, heads, inner, config["vocab_size"], "gpt2", tied=True, positions=positions
    )


def _whisper(config: dict[str, Any]) -> WhisperConfig:
    return WhisperConfig(
        config["decoder_layers"],
        config["d_model"],
        config["decoder_attention_heads"],
        config["vocab_size"],
        config["num_mel_bins"],
        2 * config["max_source_positions"],
        config["max_target_positions"],
    )


def _other(name: str, path: Path, kind: str, workload: Workload, reader: Reader | None) -> Subject:
    """Any other configuration, by transformers' own classes, for whole sequences only."""
    if reader is None or importlib.util.find_spec("transformers") is None:
        raise MissingExtraError(
            f"a model of type {kind} needs transformers, which is not installed: pip install 'torch-pjrt[examples]'"
        )
    if workload.kind == "decode":
        raise ModelError(f"decode is known for {', '.join((*_LLAMA, 'gpt2', 'whisper'))}, not for {kind}")
    train = workload.kind == "train"
    try:
        model, args, kwargs = reader(
            path, batch=workload.batch, length=workload.sequence, train=train, dtype=workload.compute_dtype
        )
    except Exception as error:  # noqa: BLE001 - any error of that library is the answer
        raise ModelError(f"transformers cannot build {path}: {type(error).__name__}: {error}") from error
    return Subject(name, model, list(args), kwargs, "token", workload.batch * workload.sequence, source=str(path))


def _imported(model: str, workload: Workload) -> Subject:
    """`pkg.module:function`: called with the workload as keywords if it takes them, it gives (model, args) or a model."""
    module_name, _, attribute = model.partition(":")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, attribute)
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything
        raise ModelError(f"--model {model} does not import: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(function):
        raise ModelError(f"--model {model} is no function")
    try:
        with torch.device("meta"):
            made = function() if not isinstance(function, torch.nn.Module) else function
    except Exception as error:  # noqa: BLE001
        raise ModelError(f"{model}() raised {type(error).__name__}: {error}") from error
    found, args, kwargs = _taken_apart(model, made)
    units = next((int(a.shape[0]) for a in args if isinstance(a, torch.Tensor) and a.dim()), 1)
    source = getattr(module, "__file__", "") or ""
    return Subject(model, found, args, kwargs, "sample", units, source=source)


def _taken_apart(name: str, made: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    if isinstance(made, tuple) and len(made) in (2, 3):
        model, args, *rest = made
        kwargs = dict(rest[0]) if rest else {}
        return model, list(args) if isinstance(args, (tuple, list)) else [args], kwargs
    raise ModelError(f"{name} must give (model, arguments) or (model, arguments, keywords), not {type(made).__name__}")
