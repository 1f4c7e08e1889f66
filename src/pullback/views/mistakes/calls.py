"""Calls that autograd refuses: outputs that are no scalars, dtypes without gradients, tensors of another mode."""

from __future__ import annotations

import ast
import re

from ..places import expressions_at, owner_text
from .sight import Explanation, Sight, at, forward_place, short, value

_INTEGER = ("Only Tensors of floating point and complex dtype can require gradients", "only Tensors of floating point dtype can require gradients")


def explain(sight: Sight) -> Explanation | None:
    for rule in (_scalar, _shape, _dtype, _integer, _numpy, _inference, _assigned, _flags, _copied, _optimizer):
        found = rule(sight)
        if found is not None:
            return found
    return None


def _scalar(sight: Sight) -> Explanation | None:
    if "grad can be implicitly created only for" not in sight.text:
        return None
    frame = sight.passed("autograd/__init__.py", "_make_grads")
    outputs = frame.f_locals.get("outputs", ()) if frame is not None else ()
    shown = value(outputs[0]) if outputs else "several elements"
    is_complex = bool(outputs) and outputs[0].is_complex()
    name = _receiver(sight)
    fix = (
        f"{name}.abs().sum().backward(), or another real loss"
        if is_complex
        else f"{name}.sum().backward() or {name}.mean().backward(); or pass a gradient of its shape: {name}.backward(weights)"
    )
    return Explanation(f"backward of {name}, which is {shown}: grad can be implicitly created only for real scalar outputs", sight.place, (), fix)


def _receiver(sight: Sight) -> str:
    for node in expressions_at(sight.readers[-1]) if sight.readers else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            return owner_text(node.func.value)
        if isinstance(node, ast.Call) and node.args:
            return owner_text(node.args[0])
    return "the output"


def _shape(sight: Sight) -> Explanation | None:
    match = re.search(
        r"Mismatch in shape: grad_output\[\d+\] has a shape of torch.Size\((?P<got>\[.*?\])\) "
        r"and output\[\d+\] has a shape of torch.Size\((?P<want>\[.*?\])\)",
        sight.text,
    )
    if match is None:
        return None
    name = _receiver(sight)
    return Explanation(
        f"the gradient that is passed to backward is {match['got']}, and {name} is {match['want']}: Mismatch in shape",
        sight.place,
        (),
        f"pass one of the shape of {name}, torch.ones_like({name}) for the sum",
    )


def _dtype(sight: Sight) -> Explanation | None:
    if not re.search(r"(same dtype|Found dtype|but got: .*(Half|BFloat16|float))", sight.text) or "type" not in sight.text or sight.method is None:
        return None
    function, method, entry = sight.method
    if method not in ("backward", "vjp"):
        return None
    low = re.search(r"BFloat16|Half", sight.text)
    reason = (
        "forward ran under autocast, backward does not: what it saved has the low dtype, the weights have float32"
        if low
        else "saved tensors and gradient differ in dtype"
    )
    return Explanation(
        f"{short(function)}.{method}: {sight.text.strip().partition(chr(10))[0]}; {reason}",
        at(entry),
        (("forward", forward_place(function)), ("called at", sight.calling)),
        "@torch.amp.custom_fwd(device_type=…) on forward and @torch.amp.custom_bwd(device_type=…) on backward; "
        "or cast in backward: x.to(grad_output.dtype)",
    )


def _integer(sight: Sight) -> Explanation | None:
    if not any(text in sight.text for text in _INTEGER):
        return None
    return Explanation(
        "an integer or boolean tensor cannot require grad: Only Tensors of floating point and complex dtype can",
        sight.place,
        (),
        "make it floating first: torch.tensor([1.0, 2.0], requires_grad=True), x.float().requires_grad_(); "
        "indices and counters need no gradient: a buffer",
    )


def _numpy(sight: Sight) -> Explanation | None:
    if "Can't call numpy() on Tensor that requires grad" not in sight.text:
        return None
    details = ()
    fix = "x.detach().numpy() for a value to look at; what is computed from it has no gradient"
    if sight.method is not None:
        details = (("method", f"{short(sight.method[0])}.{sight.method[1]}"),)
    return Explanation("numpy() on a Tensor that requires grad", sight.place, details, fix)


def _inference(sight: Sight) -> Explanation | None:
    if "nference tensor" not in sight.text:
        return None
    return Explanation(
        "a tensor that was made under torch.inference_mode() takes part in something that needs a gradient",
        sight.place,
        tuple(("block", note.place) for note in list(sight.journal.cuts.values()) if note.what == "inference_mode")[-1:],
        "make it under torch.no_grad() instead, or clone it outside: x = x.clone()",
    )


def _assigned(sight: Sight) -> Explanation | None:
    if "attempting to assign a gradient" not in sight.text:
        return None
    return Explanation(sight.text.partition(". ")[0], sight.place, (), "assign a gradient of the tensor's own shape, dtype and device, or None")


def _flags(sight: Sight) -> Explanation | None:
    if "you can only change requires_grad flags of leaf variables" not in sight.text:
        return None
    return Explanation(
        "requires_grad of a computed tensor is changed: you can only change requires_grad flags of leaf variables",
        sight.place,
        (),
        "x = x.detach() for a tensor without a graph; to freeze parameters, set it on them: model.requires_grad_(False)",
    )


def _copied(sight: Sight) -> Explanation | None:
    if "support the deepcopy protocol" not in sight.text:
        return None
    holder = next((frame.f_locals.get("x") for frame in (e.tb_frame for e in sight.entries) if frame.f_code.co_name == "deepcopy"), None)
    return Explanation(
        f"deepcopy of {type(holder).__name__ if holder is not None else 'something'} meets a computed tensor; "
        "Only Tensors created explicitly by the user (graph leaves) can be copied",
        sight.place,
        (),
        "keep x.detach() on the module, or a parameter, instead of a result of a forward",
    )


def _optimizer(sight: Sight) -> Explanation | None:
    if "can't optimize a non-leaf Tensor" not in sight.text and "optimizer got an empty parameter list" not in sight.text:
        return None
    if "empty" in sight.text:
        return Explanation(
            "optimizer got an empty parameter list",
            sight.place,
            (),
            "give it a list: list(model.parameters()); a generator can be used once only; "
            "submodules in plain lists and dicts are not registered: nn.ModuleList",
        )
    return Explanation(
        "can't optimize a non-leaf Tensor: it is computed, and backward gives gradients to leaves only",
        sight.place,
        (),
        "make the leaf last: w = (0.1 * torch.randn(3)).requires_grad_(), or nn.Parameter(…)",
    )
