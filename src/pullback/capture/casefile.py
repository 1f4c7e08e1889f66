"""`.pbrec` files: a zip of one JSON document and raw little-endian tensor files, read without running code and without trusting a size.

Nothing is pickled, nothing is extracted, no name in the archive is used as a file name, and nothing is compressed, so that an entry is as large
as the file says. Every size is compared with the header of its tensor before memory is taken.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ..report.finding import JSON
from .recorded import FunctionRecord, Layout, Recording, Signature, StoredCall, StoredTensor, dtype_named, unpack

FORMAT = "pullback recording"
VERSION = 1
DOCUMENT = "recording.json"
DOCUMENT_LIMIT = 64 << 20
TENSOR_LIMIT = 1 << 30
TOTAL_LIMIT = 4 << 30
ENTRIES_LIMIT = 100_000
_DIMS = 64


class RecordingError(ValueError):
    """Raised for a file that is not a recording, is damaged, or asks for more than it may; the message names the file and what is wrong."""


def write_recording(recording: Recording, path: Path) -> Path:
    """Write a recording; the file is there whole or not at all.

    Args:
        recording: What to write.
        path: Where.

    Returns:
        The path.

    Raises:
        OSError: if it cannot be written.
    """
    tensors: list[StoredTensor] = []
    document = {
        "format": FORMAT,
        "version": VERSION,
        "environment": recording.environment,
        "compiled_graphs": recording.compiled_graphs,
        "compiled": list(recording.compiled),
        "functions": [_function_data(record, tensors) for record in recording.functions],
    }
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(DOCUMENT, json.dumps(document, allow_nan=False))
            for i, stored in enumerate(tensors):
                if stored.data is not None:
                    archive.writestr(_entry(i), _bytes_of(stored.data))
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def read_recording(path: Path) -> Recording:
    """Return the recording in a file; nothing is imported and no code runs.

    Args:
        path: A file that `write_recording` wrote, here or on another machine.

    Raises:
        RecordingError: for anything else, and for sizes beyond the limits.
        OSError: if the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(path, archive).recording()
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise RecordingError(f"{path} is not a recording: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, RuntimeError) as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingError(f"{path} is damaged: {type(error).__name__}: {str(error)[:300]}") from error


def _entry(number: int) -> str:
    return f"tensors/{number}"


def _bytes_of(data: Tensor) -> bytes:
    flat = data.detach().cpu().contiguous().reshape(-1)
    return _little_endian(flat.view(torch.uint8), data.dtype).numpy().tobytes() if flat.numel() else b""


def _little_endian(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Return bytes swapped where this machine is big-endian; a complex number is two words."""
    size = dtype.itemsize // (2 if dtype.is_complex else 1)
    return raw if sys.byteorder == "little" or size == 1 else raw.reshape(-1, size).flip(1).reshape(-1)


def _function_data(record: FunctionRecord, tensors: list[StoredTensor]) -> JSON:
    data: dict[str, JSON] = {f.name: getattr(record, f.name) for f in fields(record) if f.name not in ("signatures", "live", "elsewhere")}
    elsewhere: dict[str, JSON] = dict(record.elsewhere)
    return data | {"elsewhere": elsewhere, "signatures": [_signature_data(signature, tensors) for signature in record.signatures]}


def _signature_data(signature: Signature, tensors: list[StoredTensor]) -> JSON:
    data: dict[str, JSON] = {name: getattr(signature, name) for name in _SIGNATURE_FIELDS}
    return data | {
        "arguments": list(signature.arguments),
        "where": list(signature.where),
        "outputs": [_layout_data(layout) for layout in signature.outputs],
        "gradients": [[[_layout_data(layout) for layout in layouts], count] for layouts, count in signature.gradients.items()],
        "call": None if signature.call is None else _call_data(signature.call, tensors),
    }


_SIGNATURE_FIELDS: dict[str, type] = {
    "autocast": str,
    "grad": bool,
    "calls": int,
    "backward_calls": int,
    "raised": int,
    "forward_seconds": float,
    "backward_seconds": float,
    "kept_bytes": int,
    "no_call": str,
}


def _layout_data(layout: Layout | None) -> JSON:
    return None if layout is None else [layout.dtype, list(layout.shape), list(layout.strides)]


def _call_data(call: StoredCall, tensors: list[StoredTensor]) -> JSON:
    first = len(tensors)
    tensors.extend(call.tensors)
    return {"args": call.args, "kwargs": call.kwargs, "first": first, "tensors": [_tensor_data(stored) for stored in call.tensors]}


def _tensor_data(stored: StoredTensor) -> JSON:
    statistics: dict[str, JSON] = {name: float(value).hex() for name, value in stored.statistics.items()}
    return {
        "layout": _layout_data(stored.layout),
        "device": stored.device,
        "requires_grad": stored.requires_grad,
        "parameter": stored.parameter,
        "how": stored.how,
        "full_shape": list(stored.full_shape),
        "statistics": statistics,
        "stored": stored.data is not None,
    }


class _Reader:
    """Reads one archive, with all that was taken so far counted."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._total = 0
        infos = archive.infolist()
        if len(infos) > ENTRIES_LIMIT:
            raise self._refused(f"it has {len(infos)} entries; at most {ENTRIES_LIMIT} are read")
        self._infos = {info.filename: info for info in infos}
        if len(self._infos) != len(infos):
            raise self._refused("two entries have the same name")
        for info in infos:
            self._require_plain(info)

    def _require_plain(self, info: zipfile.ZipInfo) -> None:
        number = info.filename.removeprefix("tensors/")
        known = info.filename == DOCUMENT or (info.filename == f"tensors/{number}" and number.isascii() and number.isdecimal())
        if not known:
            raise self._refused(f"it has an unknown entry {info.filename[:80]!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise self._refused(f"the entry {info.filename[:80]!r} is compressed; entries of a recording are stored as they are")

    def _refused(self, why: str) -> RecordingError:
        return RecordingError(f"{self._path} is not read: {why}")

    def recording(self) -> Recording:
        document = self._document()
        if document.get("format") != FORMAT:
            raise self._refused(f"its document does not say that it is a {FORMAT}")
        version = document.get("version")
        if type(version) is not int or version != VERSION:
            raise self._refused(f"it has version {str(version)[:40]!r}; this pullback reads version {VERSION}. Record again, or update pullback")
        environment = _of(document, "environment", dict)
        functions = [self._function(data) for data in _of(document, "functions", list)]
        compiled = tuple(_strings(_of(document, "compiled", list), "compiled"))
        return Recording(functions, environment, _count(document, "compiled_graphs"), compiled)

    def _document(self) -> dict[str, Any]:
        info = self._infos.get(DOCUMENT)
        if info is None:
            raise self._refused(f"it has no {DOCUMENT}")
        if info.file_size > DOCUMENT_LIMIT:
            raise self._refused(f"its document has {info.file_size} bytes; at most {DOCUMENT_LIMIT} are read")
        with self._archive.open(info) as file:
            document = json.loads(_read(file, info.file_size).decode("utf-8"))
        if not isinstance(document, dict):
            raise self._refused("its document is not a JSON object")
        return document

    def _function(self, data: Any) -> FunctionRecord:
        kind = _of(data, "kind", str)
        if kind not in ("function", "op", "library"):
            raise self._refused(f"it records a {kind[:40]!r}; functions, ops and library ops are known")
        elsewhere = {str(where): _count(data["elsewhere"], where) for where in _of(data, "elsewhere", dict)}
        signatures = [self._signature(item) for item in _of(data, "signatures", list)]
        name, module, qualname, path = (_of(data, key, str) for key in ("name", "module", "qualname", "path"))
        return FunctionRecord(name, kind, module, qualname, path, _count(data, "line"), signatures, elsewhere)

    def _signature(self, data: Any) -> Signature:
        plain: dict[str, Any] = {name: _of(data, name, (int, float) if kind is float else kind) for name, kind in _SIGNATURE_FIELDS.items()}
        gradients: dict[tuple[Layout | None, ...], int] = {}
        for item in _of(data, "gradients", list):
            layouts, count = item
            gradients[tuple(self._layout(layout) for layout in layouts)] = _whole(count, "count")
        call = data["call"]
        return Signature(
            tuple(_strings(_of(data, "arguments", list), "arguments")),
            where=tuple(_strings(_of(data, "where", list), "where")),
            outputs=tuple(self._layout(layout) for layout in _of(data, "outputs", list)),
            gradients=gradients,
            call=None if call is None else self._call(call),
            **plain,
        )

    def _call(self, data: Any) -> StoredCall:
        first = _count(data, "first")
        tensors = [self._tensor(item, first + i) for i, item in enumerate(_of(data, "tensors", list))]
        args, kwargs = _of(data, "args", list), _of(data, "kwargs", dict)
        for value in (*args, *kwargs.values()):
            self._require_readable(value, len(tensors))
        return StoredCall(args, kwargs, tensors)

    def _require_readable(self, value: JSON, count: int) -> None:
        """Go through a packed value, so that an unknown form is refused now rather than when the call is made again."""
        from .recorded import Unreplayable

        nothing = torch.empty(0)

        def tensor(number: int) -> Tensor:
            if not 0 <= number < count:
                raise self._refused(f"a call refers to tensor {number} of {count}")
            return nothing

        try:
            unpack(value, tensor)
        except Unreplayable:
            return

    def _layout(self, data: Any) -> Layout | None:
        if data is None:
            return None
        dtype, shape, strides = data
        if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(strides, list) or len(shape) > _DIMS:
            raise self._refused("a tensor's layout is not a dtype, a shape and strides")
        sizes = tuple(_whole(n, "size") for n in shape)
        return Layout(dtype, sizes, tuple(_whole(n, "stride") for n in strides))

    def _tensor(self, data: Any, number: int) -> StoredTensor:
        layout = self._layout(data["layout"])
        if layout is None or len(layout.shape) != len(layout.strides):
            raise self._refused(f"tensor {number} has no shape and strides")
        dtype = dtype_named(layout.dtype)
        how = _of(data, "how", str)
        if how not in ("whole", "sampled", "distribution"):
            raise self._refused(f"tensor {number} was stored in an unknown way, {how[:40]!r}")
        statistics = {str(name): float.fromhex(_of(data["statistics"], name, str)) for name in _of(data, "statistics", dict)}
        stored = StoredTensor(layout, _of(data, "device", str)[:40], _of(data, "requires_grad", bool), _of(data, "parameter", bool), how)
        stored.full_shape = tuple(_whole(n, "size") for n in _of(data, "full_shape", list))
        stored.statistics = statistics
        if stored.requires_grad and not (dtype.is_floating_point or dtype.is_complex):
            raise self._refused(f"tensor {number} of dtype {layout.dtype} cannot require grad")
        self._require_room(stored, number, dtype)
        if _of(data, "stored", bool):
            stored.data = self._values(stored, number, dtype)
        return stored

    def _require_room(self, stored: StoredTensor, number: int, dtype: torch.dtype) -> None:
        size = max(stored.extent, _product(stored.dense_shape), 1) * dtype.itemsize
        if size > TENSOR_LIMIT:
            raise self._refused(f"tensor {number} spans {size} bytes of memory; at most {TENSOR_LIMIT} are taken for one")
        self._total += size
        if self._total > TOTAL_LIMIT:
            raise self._refused(f"its tensors span more than {TOTAL_LIMIT} bytes of memory together")

    def _values(self, stored: StoredTensor, number: int, dtype: torch.dtype) -> Tensor:
        shape = stored.dense_shape
        size = _product(shape) * dtype.itemsize
        info = self._infos.get(_entry(number))
        if info is None:
            raise self._refused(f"the values of tensor {number} are missing")
        if info.file_size != size:
            raise self._refused(f"tensor {number} of shape {list(shape)} needs {size} bytes, but {info.file_size} are stored")
        if size == 0:
            return torch.empty(shape, dtype=dtype, device="cpu")
        with self._archive.open(info) as file:
            raw = torch.frombuffer(bytearray(_read(file, size)), dtype=torch.uint8)
        return _little_endian(raw, dtype).view(dtype).reshape(shape)


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size + 1)
    if len(data) != size:
        raise EOFError(f"{len(data)} of {size} bytes are there")
    return data


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _of(data: Any, name: str, kind: Any) -> Any:
    value = data[name] if isinstance(data, Mapping) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name!r} is a {type(value).__name__}")
    return value


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or value < 0 or value >= 1 << 62:
        raise ValueError(f"a {name} is {str(value)[:40]!r}")
    return value


def _count(data: Any, name: str) -> int:
    return _whole(_of(data, name, int), name)


def _strings(values: list[Any], name: str) -> list[str]:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name!r} holds something else than texts")
    return values
