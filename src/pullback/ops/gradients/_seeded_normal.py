"""Normal numbers as a function of a seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...authoring.op import op


@op(opaque=True, static=("seed", "like"))
def seeded_normal(seed: Tensor, like: Tensor) -> Tensor:
    """Return normal numbers, mean 0 and variance 1, of the shape, dtype and device of `like`: always the same for a seed, a device and a shape.

    Args:
        seed: Integer tensor with one element.
        like: Floating tensor, any shape.
    """
    generator = torch.Generator(device=like.device).manual_seed(int(seed))
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    return torch.randn(like.shape, generator=generator, dtype=wide, device=like.device).to(like.dtype)


@seeded_normal.fake
def _(seed: Tensor, like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


@seeded_normal.vmap
def _(info: Any, in_dims: Any, seed: Tensor, like: Tensor) -> tuple[Tensor, int | None]:
    one = like if in_dims[1] is None else like.select(in_dims[1], 0)
    if in_dims[0] is None:
        return seeded_normal(seed, one), None
    return torch.stack([seeded_normal(one_seed, one) for one_seed in seed.unbind(in_dims[0])]), 0
