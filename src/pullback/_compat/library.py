"""Ops of torch.library."""

from __future__ import annotations

from typing import Any


def library_op(value: Any) -> str:
    """The name ``"ns::op.overload"`` of a torch.library op's overload; an empty text for anything else.

    Fallback: none; torch.library hands these objects out. Retire when their class and names are public.
    """
    import torch

    return f"{value.namespace}::{value._opname}.{value._overloadname}" if isinstance(value, torch._ops.OpOverload) else ""


def library_arguments(op: Any) -> tuple[str, ...]:
    """The names of a torch.library op's arguments.

    Fallback: none. Retire when an op's schema is public.
    """
    return tuple(argument.name for argument in op._schema.arguments)


def library_parameters(op: Any) -> list[tuple[str, bool, bool, Any, Any]]:
    """Of every argument of a torch.library op: its name, whether it goes by keyword alone, whether it has a default, that default, and its type.

    Fallback: none. Retire when an op's schema is public.
    """
    import torch

    plain = {"Tensor": torch.Tensor, "int": int, "float": float, "bool": bool, "str": str, "Optional[Tensor]": torch.Tensor | None}
    plain |= {"List[Tensor]": list[torch.Tensor], "List[int]": list[int], "List[float]": list[float]}
    return [(a.name, a.kwarg_only, a.has_default_value(), a.default_value, plain.get(str(a.type), Any)) for a in op._schema.arguments]


def is_registered(name: str) -> bool:
    """Whether a torch.library op ``"ns::op"`` is registered, without looking it up, which could load one.

    Fallback: none. Retire when torch.library can be asked.
    """
    import torch

    return any(known == name or known.startswith(f"{name}.") for known in torch._C._dispatch_get_all_op_names())


def library_functions() -> list[str]:
    """The names ``"ns::op"`` of the ops that torch.library.custom_op made.

    Fallback: none is known. Retire when torch.library lists its ops.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return []
    return list(OPDEFS)


def library_function(name: str) -> Any:
    """The Python function behind an op that torch.library.custom_op made; None for any other.

    Fallback: None. Retire when such an op names its function.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return None
    return getattr(OPDEFS.get(name), "_init_fn", None)


def library_overload(value: Any) -> Any:
    """The overload that is called through what torch.library.custom_op or triton_op returned, or through ``torch.ops.ns.op``; None for anything else.

    Fallback: None. Retire when the classes of these objects are public.
    """
    import torch

    if isinstance(value, torch._ops.OpOverload):
        return value
    if isinstance(value, torch._ops.OpOverloadPacket):
        return getattr(value, "default", None)
    return getattr(value, "_opoverload", None) if type(value).__name__ == "CustomOpDef" else None


def library_rules(name: str) -> tuple[Any, Any, Any]:
    """The setup_context, backward and vmap that were registered for an op that torch.library.custom_op made; None where there is none.

    Fallback: None for each. Retire when such an op names them.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return None, None, None
    definition = OPDEFS.get(name)
    return getattr(definition, "_setup_context_fn", None), getattr(definition, "_backward_fn", None), getattr(definition, "_vmap_fn", None)
