"""Tensors: their memory, views, versions, and what writes into them."""

from __future__ import annotations

import operator
from typing import Any


def storage_id(tensor: Any) -> int:
    """A number that two live tensors share exactly if they share their memory; also for storages without bytes.

    Fallback: the tensor's own id where it has no storage (sparse, wrappers). Retire when `UntypedStorage` can be compared and hashed.
    """
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def parts_of(tensor: Any) -> list[Any]:
    """The strided tensors that a sparse tensor is made of; empty for one that is not sparse.

    Fallback: none; the names of uncoalesced parts are underscored. Retire when `indices` and `values` take uncoalesced tensors.
    """
    import torch

    names = {
        torch.sparse_coo: ("_indices", "_values"),
        torch.sparse_csr: ("crow_indices", "col_indices", "values"),
        torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
        torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
        torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    }
    return [getattr(tensor, name)() for name in names.get(tensor.layout, ())]


def base_of(tensor: Any) -> Any:
    """The tensor that autograd takes `tensor` to be a view of, or None.

    Fallback: none; documented but underscored. Retire when `Tensor._base` gets a public name.
    """
    return tensor._base


def negative_view(tensor: Any) -> Any:
    """The negative of `tensor` as a view of its memory with the negative bit set, as the imaginary part of a lazy conjugate has it.

    Fallback: none; documented but underscored. Retire when torch exports it under a public name.
    """
    import torch

    return torch._neg_view(tensor)


_VERSION = operator.attrgetter("_version")


def version_of(tensor: Any) -> int:
    """How often a tensor's memory has been written in place; 0 for an inference tensor, which does not count.

    Fallback: none; documented but underscored. Retire when `Tensor._version` gets a public name.
    """
    try:
        return tensor._version
    except RuntimeError:
        return 0


def versions_of(tensors: list[Any]) -> list[int]:
    """`version_of` every tensor, in one call.

    Fallback: none; documented but underscored. Retire when `Tensor._version` gets a public name.
    """
    try:
        return list(map(_VERSION, tensors))
    except RuntimeError:
        return list(map(version_of, tensors))


def storage_anchor(storage: Any) -> Any:
    """What keeps the identity of a storage from being given to another one, without keeping its memory.

    Fallback: none; torch.multiprocessing is built on it. Retire when `UntypedStorage` can be referenced weakly.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage)


def writing_methods() -> list[str]:
    """The names of the Tensor methods that write in place, item assignment and ``+=`` among them.

    Fallback: none; the names are those of torch. Retire when torch lists them.
    """
    import torch

    others = {"requires_grad_", "share_memory_", "rename_", "retain_grad_", "detach_"}
    base = torch._C.TensorBase
    found = [n for n in dir(base) if n.endswith("_") and not n.startswith("_") and n not in others]
    operators = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"]
    return [*found, "__setitem__", *(f"__i{operator}__" for operator in operators if hasattr(torch.Tensor, f"__i{operator}__"))]


def writing_functions() -> list[tuple[Any, str]]:
    """The functions that write in place, with the modules that hold them: ``torch.relu_``.

    Fallback: none is known. Retire when torch lists them.
    """
    import torch

    owners = (torch, getattr(torch._C, "_nn", None), getattr(torch, "_VF", None))
    names = {name for owner in owners if owner is not None for name in dir(owner)} | set(dir(getattr(torch._C, "_VariableFunctions", None)))
    wanted = sorted(name for name in names if name.endswith("_") and not name.startswith("_"))
    return [(owner, name) for owner in owners if owner is not None for name in wanted if callable(getattr(owner, name, None))]
