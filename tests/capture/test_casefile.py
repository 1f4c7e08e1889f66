"""Recordings as files: what is read is what was written, and a hostile file is refused with a message."""

import contextlib
import json
import zipfile

import pytest
import torch

from pullback.capture import casefile
from pullback.capture.casefile import RecordingError, read_recording, write_recording
from pullback.capture.recorded import (
    DTYPES,
    FunctionRecord,
    Layout,
    Recording,
    Signature,
    StoredCall,
    StoredTensor,
    Unreplayable,
    pack,
    rebuild,
    unpack,
)


def stored(tensor, **more):
    return StoredTensor(Layout(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(tensor.stride())), data=tensor, **more)


def recording(*tensors, args=None):
    call = StoredCall(args if args is not None else [{"tensor": i} for i in range(len(tensors))], {"eps": {"float": (1e-5).hex()}}, list(tensors))
    signature = Signature(("x: float32[2]",), "cpu bfloat16", True, ("checkpoint",), 3, 2, 1, 0.5, 0.25, 64, (None, Layout("float32", (2,), (1,))))
    signature.gradients = {(Layout("float32", (2,), (0,)), None): 2}
    signature.call = call
    record = FunctionRecord("m.F", "function", "m", "F", "m.py", 7, [signature], {"inside torch.func": 4})
    return Recording([record], {"torch": "2", "ranks": [0]}, 1, ("m.G",))


def test_what_is_read_is_what_was_written(tmp_path):
    written = recording(stored(torch.randn(3, 4), requires_grad=True, parameter=True, full_shape=(3, 4)))
    found = read_recording(write_recording(written, tmp_path / "a.pbrec"))
    (data,) = (t.data for t in written.functions[0].signatures[0].call.tensors)
    (again,) = (t.data for t in found.functions[0].signatures[0].call.tensors)
    assert torch.equal(data, again)
    found.functions[0].signatures[0].call.tensors[0].data = data
    assert found == written


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_dtype_comes_back(tmp_path, dtype):
    values = torch.arange(6).to(dtype).reshape(2, 3)
    found = read_recording(write_recording(recording(stored(values)), tmp_path / "a.pbrec"))
    again = found.functions[0].signatures[0].call.tensors[0].data
    assert again.dtype is dtype
    assert torch.equal(again.view(torch.uint8), values.view(torch.uint8))


@pytest.mark.parametrize(
    "tensor",
    [torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2], torch.randn(3, 1).expand(3, 4), torch.randn(()), torch.randn(0, 3)],
    ids=["packed", "transposed", "sliced", "expanded", "scalar", "empty"],
)
def test_a_tensor_is_rebuilt_with_its_strides(tensor):
    one = stored(tensor)
    dense = tensor
    for dim, stride in enumerate(tensor.stride()):
        dense = dense.narrow(dim, 0, 1) if stride == 0 else dense
    one.data = dense.clone()
    again = rebuild(one)
    assert torch.equal(again, tensor)
    assert again.stride() == tensor.stride()


def test_values_of_a_distribution_are_drawn_from_it():
    layout = Layout("float32", (1000,), (1,))
    drawn = rebuild(StoredTensor(layout, how="distribution", statistics={"mean": 5.0, "std": 2.0, "min": 0.0, "max": 9.0}), seed=1)
    assert drawn.mean().item() == pytest.approx(5, abs=0.3)
    assert 0 <= drawn.min() <= drawn.max() <= 9
    whole = StoredTensor(Layout("int64", (1000,), (1,)), how="distribution", statistics={"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0})
    assert set(rebuild(whole).tolist()) == {1, 2, 3}


@pytest.mark.parametrize(
    "value", [None, True, 3, 2.5, float("inf"), "a", 1 + 2j, (1, [2.0, None]), {"k": (1,)}, torch.float16, torch.device("cpu"), torch.Size([2, 3])]
)
def test_values_are_packed_and_unpacked(value):
    packed = json.loads(json.dumps(pack(value, lambda t: 0)))
    again = unpack(packed, lambda i: torch.empty(0))
    assert again == value
    assert type(again) is type(value)


def test_other_values_are_described():
    packed = pack([object()], lambda t: 0)
    with pytest.raises(Unreplayable, match=r"builtins\.object was not stored"):
        unpack(packed, lambda i: torch.empty(0))


def test_recordings_of_ranks_are_merged():
    first, second = recording(stored(torch.ones(2))), recording(stored(torch.ones(2)))
    second.environment["ranks"] = [1]
    merged = first.merge(second)
    (signature,) = merged.functions[0].signatures
    assert (signature.calls, signature.backward_calls, list(signature.gradients.values())) == (6, 4, [4])
    assert merged.environment["ranks"] == [0, 1]
    assert merged.functions[0].elsewhere == {"inside torch.func": 8}


# hostile files


def rewritten(path, change=lambda document: None, entries=None, compress=zipfile.ZIP_STORED, drop=()):
    """Write a recording whose document `change` has edited, with other entries, and return its path."""
    write_recording(recording(stored(torch.ones(2, 3))), path)
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist() if name not in drop}
    document = json.loads(contents[casefile.DOCUMENT])
    change(document)
    contents[casefile.DOCUMENT] = json.dumps(document).encode()
    contents |= entries or {}
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def call_of(document):
    return document["functions"][0]["signatures"][0]["call"]


def tensor_of(document):
    return call_of(document)["tensors"][0]


def at(*keys):
    """Return what sets a part of the document."""

    def setter(value, find=lambda document: document):
        def change(document):
            part = find(document)
            for key in keys[:-1]:
                part = part[key]
            part[keys[-1]] = value

        return change

    return setter


HOSTILE = {
    "unknown format": (at("format")("pickle"), "does not say"),
    "newer version": (at("version")(99), "reads version 1"),
    "version as text": (at("version")("1"), "reads version 1"),
    "huge shape": (at("layout")(["float32", [1 << 40], [1]], tensor_of), "at most"),
    "huge stride": (at("layout")(["float32", [2, 3], [1 << 50, 1]], tensor_of), "at most"),
    "negative size": (at("layout")(["float32", [-2, 3], [3, 1]], tensor_of), "a size is '-2'"),
    "fraction as size": (at("layout")(["float32", [2.0, 3], [3, 1]], tensor_of), "a size is"),
    "size beyond 64 bits": (at("layout")(["float32", [1 << 70], [1]], tensor_of), "a size is"),
    "other size than stored": (at("layout")(["float32", [2, 4], [4, 1]], tensor_of), "needs 32 bytes, but 24 are stored"),
    "strides missing": (at("layout")(["float32", [2, 3], [1]], tensor_of), "no shape and strides"),
    "unknown dtype": (at("layout")(["object", [2, 3], [3, 1]], tensor_of), "'object' is not a dtype"),
    "code as dtype": (at("layout")(["__class__", [2, 3], [3, 1]], tensor_of), "is not a dtype"),
    "unknown way": (at("how")("pickled", tensor_of), "unknown way"),
    "integer that requires grad": (lambda d: tensor_of(d).update(layout=["int32", [2, 3], [3, 1]], requires_grad=True), "cannot require grad"),
    "unknown type of value": (at("args")([{"pickle": "gASV"}], call_of), "unknown type of value 'pickle'"),
    "code as value": (at("args")([{"__reduce__": ["os.system", "true"]}], call_of), "unknown type of value"),
    "two kinds in one value": (at("args")([{"float": "0x1p+0", "int": 1}], call_of), "not a packed value"),
    "tensor out of range": (at("args")([{"tensor": 7}], call_of), "refers to tensor 7 of 1"),
    "negative tensor": (at("args")([{"tensor": -1}], call_of), "refers to tensor -1 of 1"),
    "values of another tensor": (at("first")(5, call_of), "are missing"),
    "unknown kind": (at("functions", 0, "kind")("module"), "functions, ops and library ops are known"),
    "missing key": (lambda d: d["functions"][0].pop("qualname"), "damaged: KeyError"),
    "list for a text": (at("functions", 0, "name")([]), "'name' is a list"),
    "functions as text": (at("functions")("many"), "'functions' is a str"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused(tmp_path, name):
    change, message = HOSTILE[name]
    with pytest.raises(RecordingError, match=message.replace("(", r"\(")):
        read_recording(rewritten(tmp_path / "a.pbrec", change))


@pytest.mark.parametrize("entry", ["../../evil.py", "/etc/evil", "tensors/../x", "tensors/0x", "tensors/٣", "sub/recording.json"])
def test_a_path_name_is_refused(tmp_path, entry):
    with pytest.raises(RecordingError, match="unknown entry"):
        read_recording(rewritten(tmp_path / "a.pbrec", entries={entry: b"x"}))
    assert [p.name for p in tmp_path.iterdir()] == ["a.pbrec"]


def test_a_zip_bomb_is_refused_without_unpacking(tmp_path):
    with pytest.raises(RecordingError, match="is compressed"):
        read_recording(rewritten(tmp_path / "a.pbrec", entries={"tensors/1": bytes(1 << 24)}, compress=zipfile.ZIP_DEFLATED))


def test_a_huge_document_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(casefile, "DOCUMENT_LIMIT", 100)
    with pytest.raises(RecordingError, match="at most 100 are read"):
        read_recording(rewritten(tmp_path / "a.pbrec"))


def test_too_many_entries_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(casefile, "ENTRIES_LIMIT", 1)
    with pytest.raises(RecordingError, match="has 2 entries"):
        read_recording(rewritten(tmp_path / "a.pbrec"))


def test_all_tensors_together_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(casefile, "TOTAL_LIMIT", 20)
    with pytest.raises(RecordingError, match="together"):
        read_recording(rewritten(tmp_path / "a.pbrec"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_twice_is_refused(tmp_path):
    path = rewritten(tmp_path / "a.pbrec")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("tensors/0", bytes(24))
    with pytest.raises(RecordingError, match="same name"):
        read_recording(path)


def test_deeply_nested_values_are_refused(tmp_path):
    path = rewritten(tmp_path / "a.pbrec")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(casefile.DOCUMENT, "[" * 100_000)
    with pytest.raises(RecordingError, match="damaged"):
        read_recording(path)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x05\x06" + bytes(10)])
def test_what_is_no_zip_is_refused(tmp_path, content):
    path = tmp_path / "a.pbrec"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="not a recording"):
        read_recording(path)


def test_a_file_that_is_cut_is_refused(tmp_path):
    path = rewritten(tmp_path / "a.pbrec")
    data = path.read_bytes()
    for length in range(0, len(data), 97):
        path.write_bytes(data[:length])
        with pytest.raises(RecordingError):
            read_recording(path)


def test_a_flipped_byte_is_refused_or_changes_only_values(tmp_path):
    path = rewritten(tmp_path / "a.pbrec")
    data = path.read_bytes()
    for at_byte in range(0, len(data), 13):
        damaged = bytearray(data)
        damaged[at_byte] ^= 0xFF
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(RecordingError):
            found = read_recording(path)
            assert found.functions[0].signatures[0].call.tensors[0].data.shape == (2, 3)
