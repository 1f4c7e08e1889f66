"""Functions under torch.func, torch.compile, checkpoint, and ops of torch.library."""

from __future__ import annotations

import inspect
import re
from typing import Any

from ... import _compat
from ...capture.calls import Function, relative_path
from ...report.clean import clean
from ...report.finding import Location
from .sight import Explanation, Sight, backward_place, forward_place, functions, listed, short


def explain(sight: Sight) -> Explanation | None:
    for rule in (_vmap, _setup_context, _item, _scalar, _fake, _no_formula, _aliasing, _graph_break, _checkpoint, _unused_parameters):
        found = rule(sight)
        if found is not None:
            return found
    return None


def _vmap(sight: Sight) -> Explanation | None:
    match = re.search(r"You tried to vmap over (?P<name>\w+), but it does not have vmap support", sight.text)
    if match is None:
        return None
    function = sight.function(match["name"])
    return Explanation(
        f"vmap over {match['name']}, which does not have vmap support",
        forward_place(function),
        (("vmap at", sight.calling),),
        "generate_vmap_rule = True in the class, if forward and backward consist of torch operations; "
        "else @staticmethod def vmap(info, in_dims, *args)",
    )


def _setup_context(sight: Sight) -> Explanation | None:
    if "it must override the setup_context staticmethod" not in sight.text:
        return None
    frame = sight.passed("autograd/function.py", "apply")
    cls = frame.f_locals.get("cls") if frame is not None else None
    function = cls if isinstance(cls, type) and issubclass(cls, Function) else None
    return Explanation(
        f"{short(function, 'a Function')} is used under torch.func, and its forward takes ctx; it must override the setup_context staticmethod",
        forward_place(function),
        (("apply", sight.calling),),
        "def forward(x) without ctx, and @staticmethod def setup_context(ctx, inputs, output) that saves; or write it with pb.op",
    )


def _item(sight: Sight) -> Explanation | None:
    if "calling .item() on a Tensor" not in sight.text or "vmap" not in sight.text:
        return None
    return Explanation(
        "vmap over a line that calls .item() on a Tensor", sight.place, (), "compute with the tensor itself; torch.where instead of if"
    )


def _scalar(sight: Sight) -> Explanation | None:
    if "Expected f(*args) to return a scalar" not in sight.text:
        return None
    got = sight.text.partition(", got ")[2].partition(".")[0]
    return Explanation(
        f"torch.func.grad of a function that does not return a scalar Tensor but {clean(got, limit=80) or 'something else'}",
        sight.calling,
        (),
        "return a sum, or use torch.func.vjp or jacrev",
    )


def _op_name(sight: Sight) -> tuple[str, Location | None]:
    """Return the name of the torch.library op that a text speaks of, and where it is written."""
    match = re.search(r"CustomOpDef\((?P<a>[\w:.]+)\)|through (?P<b>[\w.]+)\.default|^(?P<c>\w+) \(with implementation", sight.text)
    name = (match["a"] or match["b"] or match["c"] or "") if match is not None else ""
    name = name.replace(".", "::", 1) if "::" not in name else name
    full = next((known for known in _compat.library_functions() if known == name or known.endswith(f"::{name}")), name)
    return clean(full, limit=80), _registered(full)


def _registered(name: str) -> Location | None:
    function = _compat.library_function(name)
    return _written(function) if function is not None else None


def _written(function: Any) -> Location | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return Location(relative_path(code.co_filename), code.co_firstlineno) if code is not None else None


def _fake(sight: Sight) -> Explanation | None:
    if "no fake impl registered" not in sight.text:
        return None
    name, place = _op_name(sight)
    return Explanation(
        f"the op {name} is compiled or exported, and There was no fake impl registered for it",
        place or sight.calling,
        (("used at", sight.calling),),
        f"@{name.partition('::')[2] or 'op'}.register_fake above a function of the same arguments "
        "that returns torch.empty of the result's shape, dtype and device",
    )


def _no_formula(sight: Sight) -> Explanation | None:
    if "no autograd formula was registered" not in sight.text:
        return None
    name, place = _op_name(sight)
    short_name = name.partition("::")[2] or "op"
    return Explanation(
        f"backward through the op {name}, for which no autograd formula was registered",
        place,
        (("backward", sight.calling),),
        f"{short_name}.register_autograd(backward, setup_context=setup_context)",
    )


def _aliasing(sight: Sight) -> Explanation | None:
    if "output of this custom operator (1) must not also be an input" not in sight.text:
        return None
    name, place = _op_name(sight)
    return Explanation(
        f"the op {name or 'of torch.library'} returns one of its inputs, or a view of one: "
        "The output of this custom operator must not also be an input",
        place or sight.calling,
        (("called at", sight.calling),),
        "return a copy: x.clone(); or declare what is written: mutates_args=('x',), and return nothing",
    )


def _graph_break(sight: Sight) -> Explanation | None:
    if not type(sight.error).__module__.startswith("torch._dynamo") or "autograd.Function" not in sight.text:
        return None
    reason = (
        next((line.strip() for line in sight.text.splitlines() if line.strip().startswith("Explanation:")), "").removeprefix("Explanation:").strip()
    )
    paths = re.findall(r'File "(?P<path>.+?)", line (?P<line>\d+)', sight.text)
    inside = [(path, int(line)) for path, line in paths]
    function = next((f for f in functions() for path, line in inside if _covers(f, path, line)), None)
    stopped = inside[-1] if inside else None
    return Explanation(
        f"torch.compile stops at {short(function, 'a custom Function')}: {clean(reason, limit=200) or 'it cannot trace it'}",
        Location(relative_path(stopped[0]), stopped[1]) if stopped is not None else sight.calling,
        (("forward", forward_place(function)), ("backward", backward_place(function))),
        "keep forward and backward to torch operations; what else must run belongs into a torch.library.custom_op; "
        "without fullgraph=True it runs uncompiled",
    )


def _covers(function: type[Function], path: str, line: int) -> bool:
    code = getattr(inspect.getattr_static(function, "forward", None), "__func__", None)
    code = getattr(code, "__code__", None)
    return code is not None and code.co_filename == path and line in {n for _, _, n in code.co_lines()}


def _checkpoint(sight: Sight) -> Explanation | None:
    frame = sight.passed("utils/checkpoint.py", "check_recomputed_tensors_match")
    if frame is None or type(sight.error).__name__ != "CheckpointError":
        return None
    function = _checkpointed(frame.f_locals.get("self"))
    what = "other shapes or dtypes" if "different metadata" in sight.text else "another number of tensors"
    name = clean(getattr(function, "__qualname__", "") or type(function).__name__, limit=80)
    return Explanation(
        f"checkpoint: when {name} is computed again in backward, it saves {what} than in the forward",
        _written(getattr(function, "forward", function)),
        (("backward", sight.calling),),
        "let it do the same both times: no global state, counters, caches or other random generators, "
        "the same autocast and train mode; debug=True in checkpoint lists both",
    )


def _checkpointed(frame: Any) -> Any:
    """Return the function that was checkpointed: a cell of what recomputes it."""
    recompute: Any = getattr(frame, "recompute_fn", None)
    cells = getattr(recompute, "__closure__", None) or ()
    held = dict(zip(recompute.__code__.co_freevars, cells, strict=True)) if cells else {}
    try:
        return held["fn"].cell_contents
    except (KeyError, ValueError):
        return recompute


def _unused_parameters(sight: Sight) -> Explanation | None:
    if "finished reduction in the prior iteration" not in sight.text:
        return None
    frame = next((e.tb_frame for e in reversed(sight.entries) if e.tb_frame.f_code.co_filename.endswith("nn/parallel/distributed.py")), None)
    module = frame.f_locals.get("self") if frame is not None else None
    match = re.search(r"did not receive grad for rank \d+: (?P<indices>[\d ]+)", sight.text)
    named = [name for name, p in module.module.named_parameters() if p.requires_grad] if module is not None and hasattr(module, "module") else []
    indices = [int(index) for index in match["indices"].split()] if match is not None else []
    names = [clean(named[index], limit=80) for index in indices if index < len(named)]
    return Explanation(
        "DistributedDataParallel: " + (f"{listed(names)} got no gradient" if names else "some parameters got no gradient") + " in the step before",
        sight.calling,
        (),
        "leave what is not used out of the forward's model, or freeze it (requires_grad_(False)); "
        "else find_unused_parameters=True; every output must go into the loss",
    )
