"""pullback.ops: differentiable ops, each with its derivation, its reference in plain torch, and what it keeps for backward.

Importing it is cheap: no op, and no torch, is imported until a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._lazy import resolve

if TYPE_CHECKING:
    from .classics.add_noise import add_noise as add_noise
    from .classics.dropout import dropout as dropout
    from .classics.exp_scaled import exp_scaled as exp_scaled
    from .classics.gelu import gelu as gelu
    from .classics.guided_relu import guided_relu as guided_relu
    from .classics.muladd import muladd as muladd
    from .classics.observe import observe as observe
    from .classics.relu import relu as relu
    from .classics.scale import scale as scale
    from .classics.scaled_relu import scaled_relu as scaled_relu
    from .classics.sigmoid import sigmoid as sigmoid
    from .classics.split import split as split
    from .classics.swish import swish as swish
    from .collectives.all_gather import all_gather as all_gather
    from .collectives.all_reduce import all_reduce as all_reduce
    from .collectives.copy_to_group import copy_to_group as copy_to_group
    from .collectives.reduce_from_group import reduce_from_group as reduce_from_group
    from .collectives.reduce_scatter import reduce_scatter as reduce_scatter
    from .fused._products import probe_products as probe_products
    from .fused.checkpointed import checkpointed as checkpointed
    from .fused.layer_norm import layer_norm as layer_norm
    from .fused.linear_act import linear_act as linear_act
    from .fused.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
    from .fused.linear_gelu import linear_gelu as linear_gelu
    from .fused.logsumexp import logsumexp as logsumexp
    from .fused.rms_norm import rms_norm as rms_norm
    from .fused.softmax_cross_entropy import softmax_cross_entropy as softmax_cross_entropy
    from .fused.swiglu import swiglu as swiglu
    from .gradients.clip_gradient import clip_gradient as clip_gradient
    from .gradients.gradient_noise import gradient_noise as gradient_noise
    from .gradients.reverse_gradient import reverse_gradient as reverse_gradient
    from .gradients.scale_gradient import scale_gradient as scale_gradient
    from .gradients.stop_gradient import stop_gradient as stop_gradient
    from .gradients.zero_nan_gradient import zero_nan_gradient as zero_nan_gradient
    from .implicit.eigh import eigh as eigh
    from .implicit.fixed_point import fixed_point as fixed_point
    from .implicit.matrix_sqrt import matrix_sqrt as matrix_sqrt
    from .implicit.root import root as root
    from .implicit.solve import solve as solve
    from .kernels.allocator import tune_allocator as tune_allocator
    from .kernels.build import KernelError as KernelError
    from .kernels.cpu import compile_kernels as compile_kernels
    from .surrogates.argmax_onehot_ste import argmax_onehot_ste as argmax_onehot_ste
    from .surrogates.clamp_ste import clamp_ste as clamp_ste
    from .surrogates.fake_quantize import fake_quantize as fake_quantize
    from .surrogates.gumbel_st import gumbel_st as gumbel_st
    from .surrogates.heaviside import heaviside as heaviside
    from .surrogates.lookup import lookup as lookup
    from .surrogates.round_ste import round_ste as round_ste
    from .surrogates.sign_ste import sign_ste as sign_ste

# A module named like its op lies in a family's folder, so importing it never takes the op's place in this one.
_HOMES = {
    "add_noise": "classics.add_noise",
    "all_gather": "collectives.all_gather",
    "all_reduce": "collectives.all_reduce",
    "argmax_onehot_ste": "surrogates.argmax_onehot_ste",
    "checkpointed": "fused.checkpointed",
    "clamp_ste": "surrogates.clamp_ste",
    "clip_gradient": "gradients.clip_gradient",
    "compile_kernels": "kernels.cpu",
    "copy_to_group": "collectives.copy_to_group",
    "dropout": "classics.dropout",
    "eigh": "implicit.eigh",
    "exp_scaled": "classics.exp_scaled",
    "fake_quantize": "surrogates.fake_quantize",
    "fixed_point": "implicit.fixed_point",
    "gelu": "classics.gelu",
    "gradient_noise": "gradients.gradient_noise",
    "guided_relu": "classics.guided_relu",
    "gumbel_st": "surrogates.gumbel_st",
    "heaviside": "surrogates.heaviside",
    "KernelError": "kernels.build",
    "layer_norm": "fused.layer_norm",
    "linear_act": "fused.linear_act",
    "linear_cross_entropy": "fused.linear_cross_entropy",
    "linear_gelu": "fused.linear_gelu",
    "logsumexp": "fused.logsumexp",
    "lookup": "surrogates.lookup",
    "matrix_sqrt": "implicit.matrix_sqrt",
    "muladd": "classics.muladd",
    "observe": "classics.observe",
    "probe_products": "fused._products",
    "reduce_from_group": "collectives.reduce_from_group",
    "reduce_scatter": "collectives.reduce_scatter",
    "relu": "classics.relu",
    "reverse_gradient": "gradients.reverse_gradient",
    "rms_norm": "fused.rms_norm",
    "root": "implicit.root",
    "round_ste": "surrogates.round_ste",
    "scale": "classics.scale",
    "scale_gradient": "gradients.scale_gradient",
    "scaled_relu": "classics.scaled_relu",
    "sigmoid": "classics.sigmoid",
    "sign_ste": "surrogates.sign_ste",
    "softmax_cross_entropy": "fused.softmax_cross_entropy",
    "solve": "implicit.solve",
    "split": "classics.split",
    "stop_gradient": "gradients.stop_gradient",
    "swiglu": "fused.swiglu",
    "swish": "classics.swish",
    "tune_allocator": "kernels.allocator",
    "zero_nan_gradient": "gradients.zero_nan_gradient",
}


if not TYPE_CHECKING:  # for a type checker, a name that is not written above is a mistake
    __all__ = [*_HOMES]

    def __getattr__(name: str) -> Any:
        return resolve(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, *(name for name in globals() if name.startswith("__"))])
