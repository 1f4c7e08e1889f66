"""The contract of a Function, as Markdown: its arguments, what is differentiated, what is kept, what is declared, what transforms it offers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..capture.case import Case
from ..capture.library import op_behind, stand_in
from ..declare import Declaration
from ..report.clean import clean
from ..trees import leaves
from .evaluate import Outcome
from .probe import Probe
from .process_state import preserved_state
from .samples import describe, show_value

Function = torch.autograd.Function


def contract(name: str, cases: list[Case], declaration: Declaration) -> str:
    """Return the contract of what the cases call, measured on the first of them.

    Args:
        name: How it is called in the heading.
        cases: Samples, the first of which is run; may be empty, then only what the class itself says is written.
        declaration: What its author declares.
    """
    lines = [f"# {clean(name)}", ""]
    if not cases:
        return "\n".join([*lines, "No sample inputs: only what needs no call is known.", "", *_declarations(declaration)])
    with preserved_state():
        probe = Probe(cases[0])
        lines += [*_about(probe), *_arguments(probe), *_kept(probe)]
    return "\n".join([*lines, *_declarations(declaration), *_transforms(probe.function), *_samples(cases)]).rstrip()


def _about(probe: Probe) -> Iterator[str]:
    place = probe.target.location
    doc = (getattr(probe.function or probe.target.call, "__doc__", None) or "").strip().partition("\n")[0]
    if doc and doc != (Function.__doc__ or "").strip().partition("\n")[0]:
        yield clean(doc)
        yield ""
    if place is not None:
        yield f"Defined at `{clean(place)}`."
        yield ""
    error = probe.baseline.forward_error or probe.baseline.backward_error
    if error is not None:
        yield f"On sample 0 {error.stage} raises: {clean(error.short, limit=300)}"
        yield ""


def _arguments(probe: Probe) -> Iterator[str]:
    yield "## Arguments"
    yield ""
    gradients = dict(zip((leaf.path for leaf in probe.native.wanted), probe.baseline.gradients, strict=False))
    rows = []
    for name, value in probe.native.named:
        paths = [path for path, leaf in leaves(value, name) if isinstance(leaf, Tensor)]
        rows.append((f"`{clean(name)}`", show_value(value), _differentiated(paths, gradients)))
    yield from table(("argument", "in sample 0", "gradient"), rows)
    base = probe.baseline.outcome
    if base is None:
        return
    yield "## Returns"
    yield ""
    rows = [
        (f"`{clean(path)}`", show_value(y), "yes" if i in base.carrying else "no")
        for i, (path, y) in enumerate(zip(base.paths, base.outputs, strict=True))
    ]
    yield from table(("output", "in sample 0", "carries a gradient"), rows)


def _differentiated(paths: list[str], gradients: dict[str, Tensor | None]) -> str:
    asked = [path for path in paths if path in gradients]
    if not asked:
        return "never" if paths else "–"
    given = [path for path in asked if gradients[path] is not None]
    return "yes" if len(given) == len(asked) else "None" if not given else f"of {', '.join(given)}"


def _kept(probe: Probe) -> Iterator[str]:
    if probe.baseline.outcome is None:
        return
    outcome = probe.native.forward()
    node = _node(probe, outcome)
    if node is None:
        return
    yield "## Kept for backward"
    yield ""
    known = _known_storages(probe, outcome)
    kept = [("save_for_backward", t) for t in _saved(node)]
    kept += [(f"`ctx.{clean(path)}`", t) for name, value in vars(node).items() for path, t in leaves(value, name) if isinstance(t, Tensor)]
    if not kept:
        yield "No tensor."
        yield ""
        return
    rows = [(known.get(t.untyped_storage().data_ptr(), "a new tensor"), how, show_value(t), str(t.nbytes)) for how, t in kept]
    yield from table(("what", "how", "shape", "bytes"), rows)
    own = sum(t.nbytes for _, t in kept if t.untyped_storage().data_ptr() not in known)
    elements = sum(y.numel() for y in outcome.live)
    total = sum(t.nbytes for _, t in kept)
    yield f"{total} bytes, of which {own} in tensors that are neither argument nor output: {own / max(elements, 1):.3g} per output element."
    yield ""


def _node(probe: Probe, outcome: Outcome) -> Any:
    if probe.target.described is None or probe.function is None:
        return None
    nodes = (y.grad_fn for y in outcome.live)
    return next((node for node in nodes if type(node).__name__ == f"{probe.function.__name__}Backward"), None)


def _saved(node: Any) -> list[Tensor]:
    try:
        return [t for t in node.saved_tensors if isinstance(t, Tensor)]
    except RuntimeError:
        return []


def _known_storages(probe: Probe, outcome: Outcome) -> dict[int, str]:
    names = [(f"`{clean(path)}`, an output", y) for path, y in zip(outcome.paths, outcome.outputs, strict=True)]
    names += [(f"`{clean(leaf.path)}`, an argument", t) for leaf, t in zip(probe.native.leaves, outcome.arguments.tensors, strict=True)]
    return {t.untyped_storage().data_ptr(): name for name, t in names if t.layout == torch.strided and t.numel()}


def _declarations(declaration: Declaration) -> Iterator[str]:
    default = Declaration()
    rows = []
    for key in ("exact", "linear", "orders", "static", "surrogate", "reference", "samples", "reason"):
        value = getattr(declaration, key)
        if value != getattr(default, key):
            rows.append((key, show_value(value)))
    yield "## Declarations"
    yield ""
    if not rows:
        yield "None: the gradient is promised to be the derivative of the forward."
        yield ""
        return
    yield from table(("key", "value"), rows)


def _transforms(function: type[Function] | None) -> Iterator[str]:
    if function is None:
        return
    yield "## Transforms offered"
    yield ""
    yield from table(("transform", "offered"), _offered(function))


def _offered(function: type[Function]) -> list[tuple[str, str]]:
    op = op_behind(function)
    if op is not None:
        no = "no: torch.library makes no rule for it"
        return [
            ("torch.func.grad, vjp, jacrev", no),
            ("torch.vmap", "by the rule given to register_vmap" if op.vmap is not None else "one sample after the other: no rule is registered"),
            ("forward mode (jvp)", f"{no}, and torch gives zeros without an error (pytorch#179652)"),
            ("second derivatives", _second(stand_in(op))),
        ]
    style = function.setup_context is not Function.setup_context
    vmap = getattr(function, "generate_vmap_rule", False) or function.vmap is not Function.vmap
    return [
        ("torch.func.grad, vjp, jacrev", "yes" if style else "no: there is no setup_context"),
        ("torch.vmap", "yes" if style and vmap else "no: neither generate_vmap_rule nor vmap" if style else "no: there is no setup_context"),
        ("forward mode (jvp)", "yes" if function.jvp is not Function.jvp else "no: there is no jvp"),
        ("second derivatives", _second(function)),
    ]


def _second(function: type[Function]) -> str:
    backward = function.backward
    if hasattr(backward, "__wrapped__") and getattr(backward, "__globals__", {}).get("__name__") == "torch.autograd.function":
        return "refused cleanly (once_differentiable)"
    return "through the operations of backward (`--orders 2` checks them)"


def _samples(cases: list[Case]) -> Iterator[str]:
    yield "## Samples"
    yield ""
    yield from (f"{case.index}. {describe(case)}" for case in cases)
    yield ""


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield a Markdown table with aligned columns, and an empty line."""
    cells = [tuple(cell.replace("|", "\\|") for cell in row) for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for number, row in enumerate(cells):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    yield ""
