"""A Hugging Face config file as (model, args, kwargs) whose weights exist as shapes only. For `torch-pjrt compile --config`.

Owns which inputs a model of a config takes. Needs transformers when it is called, not when it is imported.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from pathlib import Path
from typing import Any

import torch

from torch_pjrt.errors import BadSettingError, InvalidOperandError


def from_config(
    path: str | Path, *, batch: int = 1, length: int = 128, mode: str = "infer", dtype: torch.dtype | None = None
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The model of a config file (or of the folder that holds one) on the meta device, and arguments of the given sizes.

    mode: "decode" gives one token against a cache of `length`. dtype: of the weights; without it the config's. Raises
    BadSettingError without transformers or for an unknown architecture.
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise BadSettingError(
            "reading a Hugging Face config needs transformers", todo="pip install transformers"
        ) from error
    path = Path(path)
    facts = json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8"))
    kind, names = facts.get("model_type"), facts.get("architectures") or []
    if not kind:
        raise BadSettingError(f"{path} has no model_type", todo="Give the config.json of a Hugging Face model.")
    config = transformers.AutoConfig.for_model(**facts)
    maker: Any = getattr(transformers, names[0], None) if names else transformers.MODEL_MAPPING.get(type(config), None)
    if maker is None:
        raise BadSettingError(f"transformers {transformers.__version__} has no {(names or [kind])[0]}")
    with torch.device("meta"):
        model = maker(config)
    wanted = dtype or getattr(config, "dtype", None)
    if wanted is not None:
        model = model.to(wanted)
    experts_of_known_shapes(model)
    if mode == "decode":
        from torch_pjrt.integrations.hf_config.decode import one_token

        return (*one_token(model, batch=batch, length=length), {})
    return model, (), arguments(model, batch=batch, length=length, train=mode == "train")


def experts_of_known_shapes(model: Any) -> None:
    """Let a mixture of experts compute in a way whose shapes do not depend on values: grouped products, which transformers has
    for bfloat16 alone while a model is recorded; else a copy of its expert's weights for every token."""
    if hasattr(model, "set_experts_implementation"):
        grouped = next(model.parameters()).dtype == torch.bfloat16
        with contextlib.suppress(ValueError):  # a model without experts
            model.set_experts_implementation("grouped_mm" if grouped else "batched_mm")


def arguments(model: Any, *, batch: int, length: int, train: bool) -> dict[str, Any]:
    """Arguments (meta tensors) for a model of transformers, found by the names that its forward takes."""
    takes = inspect.signature(model.forward).parameters
    config, dtype = model.config, next(model.parameters()).dtype

    def tokens() -> torch.Tensor:
        return torch.empty(batch, length, dtype=torch.long, device="meta")

    found: dict[str, Any] = {}
    main = getattr(model, "main_input_name", "input_ids")
    if main == "input_features":
        frames = 2 * getattr(config, "max_source_positions", 1500)
        found["input_features"] = torch.empty(
            batch, getattr(config, "num_mel_bins", 80), frames, dtype=dtype, device="meta"
        )
    elif main == "pixel_values":
        side = getattr(config, "image_size", 224)
        height, width = side if isinstance(side, (list, tuple)) else (side, side)
        channels = getattr(config, "num_channels", 3)
        found["pixel_values"] = torch.empty(batch, channels, height, width, dtype=dtype, device="meta")
    elif main == "input_ids":
        found["input_ids"] = tokens()
    else:
        raise InvalidOperandError(
            f"{type(model).__name__} takes {main}", todo="Write a function for --model that makes its arguments."
        )
    if "decoder_input_ids" in takes and not train:
        found["decoder_input_ids"] = tokens()
    if "use_cache" in takes:
        found["use_cache"] = False
    if train and "labels" in takes:
        found["labels"] = torch.empty(batch, dtype=torch.long, device="meta") if main == "pixel_values" else tokens()
    return found
