"""Models of torchvision and timm on small pictures, every block of an architecture once or twice.

Owns the table of names and how one is built: a block that only repeats the one before it adds time and no operator. The
pictures are as small as the architecture takes, and there are enough of them that batch norm's last stage has something to
average.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

CLASSES = 10
BATCH = 4


@dataclass(frozen=True, slots=True)
class Picture:
    """A model of a library: its name there, the pictures' side, and the arguments of its constructor."""

    library: str
    name: str
    size: int = 64
    arguments: dict[str, Any] = field(default_factory=dict)


def _tv(name: str, size: int = 64, **arguments: Any) -> Picture:
    return Picture("torchvision", name, size, arguments)


def _timm(name: str, size: int = 64, **arguments: Any) -> Picture:
    return Picture("timm", name, size, arguments)


_TABLE = (
    _tv("resnet18"),
    _tv("resnext50_32x4d"),
    _tv("squeezenet1_1"),
    _tv("googlenet", 96, aux_logits=True, init_weights=False),
    _tv("shufflenet_v2_x0_5"),
    _tv("mobilenet_v2"),
    _tv("mobilenet_v3_small"),
    _tv("mnasnet0_5"),
    _tv("efficientnet_b0"),
    _tv("regnet_x_400mf"),
    _tv("lraspp_mobilenet_v3_large", weights_backbone=None),
    _tv("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    _tv("inception_v3", 96, aux_logits=False, init_weights=False),
    _tv("convnext_tiny"),
    _tv("r3d_18", 32),
    _timm("vit_tiny_patch16_224", img_size=64, depth=3),
    _timm("deit_tiny_distilled_patch16_224", img_size=64, depth=3),
    _timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=96, num_heads=4),
    _timm("cait_xxs24_224", img_size=64, depth=3),
    _timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4, depths=(1, 1, 2, 1), embed_dim=24),
    _timm("swinv2_tiny_window8_256", img_size=64, window_size=4, depths=(1, 1, 2, 1), embed_dim=24),
    _timm("xcit_nano_12_p8_224", img_size=64, depth=3),
    _timm("twins_svt_small", img_size=64, depths=(1, 1, 2, 1)),
    _timm("maxvit_rmlp_pico_rw_256", img_size=64, depths=(1, 1, 1, 1)),
    _timm("coatnet_pico_rw_224", img_size=64, depths=(1, 1, 1, 1)),
    _timm("hiera_tiny_224", img_size=64, stages=(1, 1, 2, 1)),
    _timm("mixer_s32_224", img_size=64),
    _timm("resmlp_12_224", img_size=64),
    _timm("sequencer2d_s", img_size=64, layers=(1, 1, 1, 1)),
    _timm("resnet26d", layers=(1, 1, 1, 1)),
    _timm("vgg11_bn", mlp_ratio=1 / 16),
    _timm("densenet121", growth_rate=8, block_config=(2, 2, 2, 2)),
    _timm("seresnet18"),
    _timm("res2net50_26w_4s", layers=(1, 1, 1, 1)),
    _timm("skresnet18"),
    _timm("repvgg_a0"),
    _timm("ghostnet_050"),
    _timm("mobilenetv4_conv_small"),
    _timm("convnextv2_atto"),
    _timm("edgenext_xx_small"),
    _timm("poolformerv2_s12"),
    _timm("pvt_v2_b0", depths=(1, 1, 2, 1)),
    _timm("mobilevit_xxs"),
    _timm("levit_128s", img_size=64),
    _timm("regnety_002"),
    _timm("nf_regnet_b0"),
    _timm("tf_efficientnetv2_b0"),
    _timm("mixnet_s"),
    _timm("dpn48b"),
    _timm("gmlp_ti16_224", img_size=64),
    _timm("dla34"),
    _timm("focalnet_tiny_srf"),
)
VISION: dict[str, Picture] = {f"{p.library}/{p.name}": p for p in _TABLE}


def build(picture: Picture) -> tuple[nn.Module, dict[str, Any], Callable[[Any], torch.Tensor]]:
    """The model, its inputs, and the loss of what it gives."""
    if picture.library == "torchvision":
        import torchvision

        make: Callable[..., nn.Module] = torchvision.models.get_model
    else:
        import timm

        make = timm.create_model
    model = make(picture.name, num_classes=CLASSES, **picture.arguments)
    shorten(model)
    frames = (8,) if picture.name == "r3d_18" else ()
    x = torch.randn(BATCH, 3, *frames, picture.size, picture.size)
    return model, {next(iter(inspect.signature(model.forward).parameters)): x}, _cross_entropy


def shorten(model: nn.Module) -> None:
    """Leave out, from the third block of a sequence on, each that has the weights' shapes of the block before it."""
    for sequence in [m for m in model.modules() if isinstance(m, nn.Sequential)]:
        blocks = list(sequence.named_children())
        forms = [(type(block), [weight.shape for weight in block.parameters()]) for _, block in blocks]
        for i in range(2, len(blocks)):
            if forms[i][1] and forms[i] == forms[i - 1]:
                delattr(sequence, blocks[i][0])


def _cross_entropy(result: Any) -> torch.Tensor:
    """The sum over all results (class scores, of a picture or of its pixels) of the cross entropy with fixed labels."""
    total = torch.zeros(())
    for part in torch.utils._pytree.tree_leaves(result):
        if isinstance(part, torch.Tensor) and part.dim() >= 2:
            labels = torch.arange(part.numel() // part.shape[1], device=part.device) % CLASSES
            labels = labels.reshape(part.shape[0], *part.shape[2:])
            total = total.to(part.device) + nn.functional.cross_entropy(part, labels)
    return total


_declared: list[torch.library.Library] = []


def declare_missing_operators() -> None:
    """Let torchvision be imported where its C++ operators are not built for this torch: no model here calls them."""
    if _declared:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
