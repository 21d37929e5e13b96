"""Resizing images of bytes, which torch does in 16-bit fixed point: every byte equal to CPU torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_resized_as_on_the_cpu(mode: str, antialias: bool) -> None:
    images = torch.randint(0, 256, (2, 3, 17, 23), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for size in ((3, 31), (17, 7)):
        want = F.interpolate(images, size=size, mode=mode, antialias=antialias)
        got = F.interpolate(images.to("pjrt"), size=size, mode=mode, antialias=antialias)
        assert torch.equal(got.cpu(), want)
