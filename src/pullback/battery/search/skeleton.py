"""A `pullback_cases()` text with the best attempt filled in, to be pasted and mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .specs import Slot, Spec, State, composed


def skeleton(function: type, state: State, slots: Sequence[Slot], error: str = "", blamed: str = "") -> str:
    """Return the text of a `pullback_cases()` for one Function.

    Args:
        function: The Function, already in scope where the text is pasted.
        state: The best attempt.
        slots: Parameters of forward.
        error: What the best attempt raised, written above the blamed argument.
        blamed: The parameter it is about.
    """
    lines: list[str] = []
    names: list[str] = []
    for spec, slot in zip(state, slots, strict=True):
        if error and slot.name == blamed:
            lines.append(f"    # change `{slot.name}`: with this value the call raised {_one_line(error)}")
        if spec.kind == "omitted":
            continue
        if slot.star:
            for i, item in enumerate(spec.items):
                names.append(f"{slot.name}_{i}")
                lines.append(f"    {names[-1]} = {expression(item)}")
            continue
        names.append(slot.name)
        lines.append(f"    {slot.name} = {expression(spec, slot.default)}")
    if error and not blamed:
        lines.insert(0, f"    # with these values the call raised {_one_line(error)}")
    call = ", ".join([function.__qualname__.rpartition("<locals>.")[2], *names])
    body = "\n".join([*_spd_helper(state), *lines, f"    yield pb.case({call})"])
    imports = ["import torch", "import pullback as pb"]
    if "SimpleNamespace" in body:
        imports.insert(0, "from types import SimpleNamespace")
    return "\n".join([*imports, "", "", "def pullback_cases():", body, ""])


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 140 else flat[:137] + "..."


def _spd_helper(state: State) -> list[str]:
    if not any(one.draw in ("spd", "symmetric", "tril") for spec in state for one in (spec, *spec.items)):
        return []
    return ["    def square(*shape):", "        return torch.randn(*shape, dtype=torch.float64)", ""]


def expression(spec: Spec, default: Any = None) -> str:
    """Return Python source for a value such as `spec` describes."""
    if spec.kind == "tensor":
        return _tensor_expression(spec)
    sizes = ", ".join(map(str, spec.shape))
    if spec.kind == "index":
        least, most = (1, (spec.value or 3) + 1) if spec.draw == "lengths" else (0, spec.value or 3)
        return f"torch.randint({least}, {most}, ({sizes}{',' if len(spec.shape) == 1 else ''}), dtype=torch.{spec.dtype})"
    if spec.kind == "mask":
        return f"torch.rand({sizes or '()'}) > 0.5"
    if (written := composed(spec, expression)) is not None:
        return written
    if spec.kind in ("callable", "module"):
        return spec.value
    return repr(default if spec.kind == "default" else spec.value)


def _tensor_expression(spec: Spec) -> str:
    sizes = ", ".join(map(str, spec.shape)) or "()"
    grad = spec.differentiable
    if spec.draw in ("normal", "wide"):
        factor = "4 * " if spec.draw == "wide" else ""
        made = f"{factor}torch.randn({sizes}, dtype=torch.{spec.dtype}{', requires_grad=True' if grad and not factor else ''})"
        return f"({made}).requires_grad_()" if grad and factor else made
    plain = f"torch.rand({sizes}, dtype=torch.{spec.dtype})"
    made = {
        "positive": f"({plain} + 0.2)",
        "above": f"({plain} + 1.2)",
        "unit": f"(0.05 + 0.9 * {plain})",
        "simplex": f"{plain}.softmax(-1)" if spec.shape else plain,
        "binary": f"({plain} > 0.5).to(torch.{spec.dtype})",
        "labels": f"torch.randint(0, 3, ({sizes},)).to(torch.{spec.dtype})",
        "symmetric": f"(lambda a: (a + a.mT) / 2)(square({sizes}))",
        "spd": f"(lambda a: a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype))(square({sizes}))",
        "tril": f"(lambda a: a.tril(-1) + torch.eye(a.shape[-1], dtype=a.dtype))(square({sizes}))",
    }.get(spec.draw, plain)
    return f"{made}.requires_grad_()" if grad else made
