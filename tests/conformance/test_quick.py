"""A hundred everyday operators of op_db: some samples each, forward and backward, float32, fused.

The whole of it is `./dev conformance`; this part finds what a change breaks at large.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from conformance import checks
from conformance.judging import verdict
from conformance.nodes import entries

OPS = """
abs add addcdiv addcmul addmm amax amin arange argmax argmin argsort atan2 baddbmm bmm cat ceil chunk clamp clone contiguous
cos cumprod cumsum diag diagonal div.no_rounding_mode dot einsum eq erf exp expand expm1 eye fill flatten flip floor full
gather ge gelu index_add index_put index_select isfinite lerp linspace log log1p log_softmax logical_and logsumexp
masked_fill matmul max.reduction_with_dim maximum mean min.binary minimum mm movedim mul narrow ne neg
nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.batch_norm nn.functional.binary_cross_entropy
nn.functional.conv1d nn.functional.conv2d nn.functional.cross_entropy nn.functional.embedding nn.functional.gelu
nn.functional.group_norm nn.functional.layer_norm nn.functional.linear nn.functional.max_pool2d nn.functional.mse_loss
nn.functional.nll_loss nn.functional.pad.constant nn.functional.relu nn.functional.rms_norm
nn.functional.scaled_dot_product_attention nn.functional.silu nn.functional.softplus nonzero outer permute pow prod
reciprocal remainder repeat reshape roll rsqrt rsub scatter scatter_add select sigmoid sign sin softmax sort split sqrt
squeeze stack std sub sum tanh tile topk transpose tril triu unbind unfold unsqueeze var view where zeros_like
""".split()
LIMIT = 4
PARTS = {
    "forward": [n for n in OPS if n in entries()],
    "backward": [n for n in OPS if n in entries() and torch.float32 in entries()[n].backward_dtypes],
}


@pytest.mark.parametrize(("test", "op"), [(test, op) for test, ops in PARTS.items() for op in ops])
def test_quick(test: str, op: str, record_property: Any) -> None:
    """A few samples spread over all of them."""
    info = entries()[op]
    if test == "backward" and not info.supports_autograd:
        pytest.skip("has no gradient")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict(
            test,
            op,
            "float32",
            "fused",
            lambda: getattr(checks, test)(info, torch.float32, limit=LIMIT),
            record_property,
        )


@pytest.mark.parametrize("op", ["amax", "amin", "aminmax", "cat", "gather", "index_add", "kthvalue"])
def test_errors(op: str, record_property: Any) -> None:
    """What torch refuses is refused with an error of the same class."""
    verdict("errors", op, "float32", "fused", lambda: checks.errors(entries()[op]), record_property)
