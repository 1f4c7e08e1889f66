"""What a parameter's name, annotation and default say: a tie-break, never a rule that decides."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .traits import Trait

# kind, weight, draw of a tensor, usual value or rank : pattern of the whole name
_NAMES = r"""
tensor 0.6 - - : (x|y|z|a|b|u|v|q|k|v|qkv|h|t|s)\d?
tensor 0.7 - - : .*(input|tensor|inp|feature|activation|logit|hidden|query|key|value|image|data|embed).*
tensor 0.7 - - : .*(potential|membrane|mem|spike|residual|state|grad).*
tensors 0.5 - - : (xs|inputs|tensors|tensor_list|params|parameters|args)
tensor 0.8 - - : .*(weight|kernel|matrix)|w\d?|wt
tensor 0.4 - 1 : .*bias|b|beta|gamma|running_mean|running_var|mean|rstd|invstd
tensor 0.6 - 2 : (A|M|mat|matrix|K|L|S|P|C|Q|R|X|Y|W|H)\d?
tensor 0.5 spd 2 : .*(cov|covariance|precision|spd|psd|gram)\d?
index 1.0 - - : .*(index|indices|idx|inds|perm|permutation|assignment|edge_index|segment_ids?|group_ids?|positions?|pos_ids?)
index 1.0 offsets 1 : .*(offsets|indptr|rowptr|crow|cu_seqlens.*|cu_.*)
index 0.9 lengths 1 : .*(lengths|lens|seqlens)
index 0.4 - 1 : .*length
index 0.4 counts 1 : .*(counts|sizes)
index 0.3 - 1 : .*(labels?|targets?|classes|gt)
tensor 0.4 - - : .*(labels?|targets?|gt)
mask 0.7 - - : .*mask.*
tensor 0.4 binary - : .*mask.*
int 1.0 - -1 : (dim|axis|dimension|seq_dim|dims?_?\d?|batch_dim|.*_dim|.*_axis)
int 0.8 - - : (n|m|k|num|steps?|n_.*|num_.*|.*_size|size|.*_steps|iters?|iterations|chunk.*|chunks|groups?|heads?|n?bits?|.*_bits)
int 0.8 - 7 : levels?|.*_levels
int 0.8 - - : (blank|start|end|offset|seed|src|root)
int 1.8 - - : (pad|padding|ignored?|void|blank|unk|unknown|mask|bos|eos|sos|cls|sep|layer)_?(idx|index|id|label|token)
int 0.8 - - : (bitwidth|order|rank|world_size|degree|depth|T|stride|padding|kernel_size|block.*|window.*|topk|top_k)
float 1.0 - 0.001 : (eps|epsilon|.*_eps)
float 0.6 - 0.3 : (p|prob|rate|drop.*|dropout_p|keep_prob)
float 0.8 - 0.7 : (momentum|decay|tau|temperature|temp|lr|learning_rate)
float 0.5 - -0.8 : (min.*|lo|low|lower|lower_bound|.*_min|left|q?n|thd_neg|qmin|.*_neg)
float 0.5 - 0.9 : (max.*|hi|high|upper|upper_bound|.*_max|right|clip.*|bound|limit|q?p|thd_pos|qmax|.*_pos)
float 0.7 - 0.7 : (alpha|beta|gamma|lambda_?|lambd|lam|lmbda|lamb|coeff?|coeffs|strength|weight|factor|.*_factor|scale|scaling|slope)
float 0.7 - 0.7 : (negative_slope|sigma|width|delta|margin|threshold|thresh|thre|thr|v_?th.*|theta|const|constant|gain|sharpness|damp.*|ratio)
float 0.7 - 0.7 : (steepness|power|exponent|reg)
tensor 0.4 positive - : .*(scale|scales|sigma|std|var|variance|zero_point)
tensor 0.5 unit - : .*(prob|probs|probability|probabilities)
tensor 0.5 positive - : (rstd|inv_std|norm|norms|running_var|radius|radii|dist|distance)
int 0.1 - -2 : (q_?min|qn|thd_neg|lo|low|lower.*|min_.*|.*_min)
int 0.1 - 3 : (q_?max|qp|thd_pos|hi|high|upper.*|max_.*|.*_max)
bool 0.7 - - : (is_.*|use_.*|has_.*|with_.*|training|train|inplace|in_place|.*_flag|flag|causal|is_causal|keepdim|normali[sz]e.*|signed)
bool 0.7 - - : (symmetric|affine|debug|verbose|sym|hard|reverse|backward_.*|stochastic|preserve_rng_state|.*_only|transpose.*|bidirectional)
bool 0.7 - - : (upper|unbiased|track.*|enabled?|round.*)
str 0.7 - - : (reduction|reduce|mode|method|kind|type|.*_mode|.*_type|activation|act|act_type)
ints 0.6 - - : (shape|.*_shape|output_size|size|sizes|dims|normalized_shape|perm|axes|kernel_size|stride|padding|dilation)
callable 0.9 - - : (fn|f|func|function|.*_fn|.*_func|.*_function|callback|forward_func|run_function|activation_fn|closure|op|hook|surrogate.*)
module 0.8 - - : (module|model|layer|net|network|block|layers|func_net|odefunc)
callables 0.7 - - : (fns|.*_fns|funcs|functions|callables|callbacks|hooks|branches|layers|blocks|modules|submodules|experts)
group 1.0 - - : (group|process_group|.*_group|pg)
dtype 1.5 - - : (dtype|.*_dtype)
device 1.2 - - : (device|.*_device)
object 0.5 - - : (cfg|config|opts?|options|args|params|settings|obj|self_?|state|meta|info|spec|hparams|quantizer|owner)
"""


def _parse_names(table: str) -> Iterator[tuple[re.Pattern[str], str, float, str, Any]]:
    for line in table.strip().splitlines():
        head, _, pattern = line.partition(" : ")
        kind, weight, draw, value = head.split()
        yield re.compile(pattern), kind, float(weight), "" if draw == "-" else draw, None if value == "-" else ast.literal_eval(value)


_TABLE = tuple(_parse_names(_NAMES))

FORBIDDEN = frozenset(
    [
        "file",
        "filename",
        "filepath",
        "path",
        "dir",
        "directory",
        "folder",
        "url",
        "uri",
        "stream",
        "conn",
        "connection",
        "socket",
        "sock",
        "handle",
        "fd",
    ]
)


def note_name(name: str, trait: Trait) -> None:
    """Add what the name says."""
    for pattern, kind, weight, draw, value in _TABLE:
        if not pattern.fullmatch(name.lower() if len(name) > 1 else name):
            continue
        trait.score(kind, weight)
        if draw and kind in ("tensor", "index"):
            trait.draws.append((kind, draw))
        if value is not None:
            trait.usual.setdefault(kind, value)


def sounds_forbidden(name: str) -> bool:
    """Return whether the name speaks of a file, a stream or a connection."""
    return any(word in FORBIDDEN for word in name.lower().split("_"))


_ANNOTATIONS: tuple[tuple[str, str, float], ...] = (
    (r"(List|Sequence|Tuple|Iterable|list|tuple)\[[^\[]*(Callable|Module)|ModuleList", "callables", 2.5),
    (r"Callable", "callable", 2.0),
    (r"Module\b", "module", 2.0),
    (r"(List|Sequence|Tuple|Iterable|list|tuple)\W+(torch\.)?(Float|Long)?Tensor", "tensors", 2.0),
    (r"(List|Sequence|Tuple|list|tuple)\W+int|\bSize\b", "ints", 2.0),
    (r"^(List|Sequence|Tuple|list|tuple)$", "ints", 1.6),
    (r"^(List|Sequence|Tuple|list|tuple)$", "tensors", 1.0),
    (r"LongTensor|IntTensor", "index", 2.0),
    (r"BoolTensor|ByteTensor", "mask", 2.0),
    (r"Tensor", "tensor", 1.5),
    (r"ProcessGroup|DeviceMesh", "group", 2.0),
    (r"\bdtype\b", "dtype", 2.0),
    (r"\bdevice\b", "device", 2.0),
    (r"\bint\b", "int", 1.4),
    (r"\bfloat\b", "float", 1.2),
    (r"\bbool\b", "bool", 2.0),
    (r"\bstr\b|Literal", "str", 1.5),
    (r"\bdict\b|\bDict\b|Mapping", "dict", 1.5),
    (r"Optional|None", "none", 0.2),
)


def note_annotation(annotation: Any, trait: Trait) -> None:
    """Add what the annotation says; float annotations do get tensors, so it decides nothing alone."""
    if annotation is inspect.Parameter.empty or annotation is None:
        return
    text = annotation.__name__ if isinstance(annotation, type) and not getattr(annotation, "__args__", None) else str(annotation)
    inside_list = re.search(r"(List|Sequence|Tuple|Iterable|list|tuple)\W", text) is not None
    for pattern, kind, weight in _ANNOTATIONS:
        if (
            re.search(pattern, text)
            and not (inside_list and kind in ("tensor", "int", "float"))
            and not ("Callable" in text and not kind.startswith("callable"))
        ):
            trait.score(kind, weight)
    for word in re.findall(r"['\"]([\w-]+)['\"]", text) if "Literal" in text else ():
        trait.constants.append(word)


OF_ITS_OWN = 50.0
"""Settings that the author gives as an object are better than any that is made up from the attributes read."""

_DEFAULTS: tuple[tuple[type | tuple[type, ...], str, Callable[[Any], float]], ...] = (
    (bool, "bool", lambda v: 2.5),
    (int, "int", lambda v: 1.8),
    (float, "float", lambda v: 1.8),
    (str, "str", lambda v: 2.5),
    (torch.dtype, "dtype", lambda v: 2.5),
    (torch.device, "device", lambda v: 2.5),
    ((tuple, list), "ints", lambda v: 1.5 if all(isinstance(e, int) for e in v) else 0.2),
)


def note_default(default: Any, trait: Trait) -> None:
    """Add what the default says."""
    trait.score("default", 0.5)
    if default is None:
        trait.score("none", 0.4)
        trait.optional = True
        return
    for types, kind, weight in _DEFAULTS:
        if isinstance(default, types) and not hasattr(default, "_fields"):
            trait.score(kind, weight(default))
            trait.defaults[kind] = tuple(default) if isinstance(default, (tuple, list)) else default
            if kind in ("int", "float"):
                trait.score("index", -1.0)
            if kind == "int":
                trait.score("float", 0.6)
            return
    trait.score("default", 2.0 if isinstance(default, torch.Tensor) or callable(default) else OF_ITS_OWN)
