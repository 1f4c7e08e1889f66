"""Other contents of the arguments that are not differentiated: labels to be ignored, indices that repeat or leave a row out, other signs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..capture.source import called_by, syntax_of
from ..report.finding import Severity
from . import tolerance
from .code_text import LEVELS
from .edges import Edge, gradient_pair
from .evaluate import Evaluator, Leaf
from .probe import Probe
from .special import numbers_among
from .tensors import differentiable
from .truth import eager

_IGNORED = re.compile(r"ignore|pad|void|mask", re.IGNORECASE)
_MASK = re.compile(r"mask|valid|keep|select|hot|label|target|active|visible|exist|where|drop", re.IGNORECASE)
_TARGET = re.compile(r"target|label|sign", re.IGNORECASE)
_TIMES = re.compile(r"(^|\.)(t|ts|times?|t_?span|time_?points|grid_?points)$", re.IGNORECASE)
_UNIT = re.compile(r"(^|[._])(u|us|uniform\w*|quantiles?|tau|taus|fractions?|levels?|rand|alphas?|opacit\w+)$", re.IGNORECASE)
_POSITIVE = re.compile(
    r"scale|sigma|std|var|prob|norm|dist|radi|temp|eps|mask|count|len|size|width|cov|prec|time|dt|delta|decay|rate|cos|sin|freq", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Content:
    """One argument with other contents.

    Args:
        path: Which argument.
        name: What is special, in words: ``"every entry equal"``.
        value: The argument's value.
        contract: What the sample obeys and this value does not, in words; empty where there is nothing of the kind.
        doubtful: Whether nothing in the sample says that such values ever come.
    """

    path: str
    name: str
    value: Tensor
    contract: str = ""
    doubtful: bool = False

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.path} with {self.name}"


def other_contents(probe: Probe) -> Iterator[Content]:
    """Yield other contents for every tensor argument of more than one entry that is not differentiated, one argument at a time."""
    evaluator = probe.exact
    ignored = _ignored(probe)
    for leaf in evaluator.leaves:
        t = leaf.template
        if leaf.wanted or t.numel() < 2 or t.layout is not torch.strided or t.is_complex() or t.__dict__:
            continue
        if t.dtype is torch.bool:
            for value in (True, False):
                yield Content(leaf.path, f"every entry {value}", torch.full_like(t, value))
        elif differentiable(t):
            yield from _of_numbers(leaf)
            yield from _of_signs(leaf, probe)
        else:
            yield from _of_indices(leaf, evaluator, ignored)


def severity_of(probe: Probe, content: Content, evaluator: Evaluator, edge: Edge) -> Severity | None:
    """Return how bad a gradient is that fails with these contents; None where they break a contract that the sample obeys, and in no telling way."""
    if edge.kind == "nan too":
        return None if content.contract else "note"
    if not content.contract:
        return "warning" if content.doubtful else "error"
    if differentiable(content.value):
        return "warning"
    pair = gradient_pair(probe, evaluator, eager(evaluator), edge.verdict.path)
    if pair is None or pair[0].is_complex():
        return None
    got, expected = pair
    return "warning" if repeats_only(content, got, expected, tolerance.analytic(got.dtype, float(expected.abs().max()))) else None


def repeats_only(content: Content, got: Tensor, expected: Tensor, slack: float) -> bool:
    """Whether two gradients differ in no other row than those which an index names several times: an addition was forgotten."""
    index = content.value.reshape(-1)
    if not got.dim() or index.numel() == 0 or int(index.min()) < 0 or int(index.max()) >= got.shape[0]:
        return False
    wrong = (got - expected).abs().reshape(got.shape[0], -1).amax(1) > slack
    repeated = torch.bincount(index.to(torch.int64), minlength=got.shape[0]) > 1
    return bool(wrong.any()) and not bool((wrong & ~repeated).any())


def _of_numbers(leaf: Leaf) -> Iterator[Content]:
    """Zeros and the other sign, where all entries have one sign; not for masks, probabilities, and what the name says is positive.

    Entries that are all 0, or all 1, hide what is multiplied by them: they get other values, a warning. So does a course of time that runs back.
    """
    t = leaf.template.detach()
    if _TIMES.search(leaf.path) and t.dim() == 1 and t.numel() > 2 and bool((t.diff() > 0).all()):
        yield Content(leaf.path, "its entries in reverse", t.flip(0), f"{leaf.path} increases")
    neutral = next((n for n in (0, 1) if bool((t == n).all())), None)
    if neutral is not None and not _MASK.search(leaf.path):
        value = torch.full_like(t, 0.7, memory_format=torch.contiguous_format).reshape(-1)
        value[::2] = 1.3
        yield Content(leaf.path, f"entries other than {neutral}", value.reshape(t.shape), f"every entry of {leaf.path} is {neutral}")
    if bool(((t == 0) | (t == 1)).all()) or not bool((t > 0).all() or (t < 0).all()) or _POSITIVE.search(leaf.path):
        return
    if t.dim() and t.shape[-1] > 1 and torch.allclose(t.sum(-1), torch.ones_like(t.sum(-1))):
        return
    if _UNIT.search(leaf.path) and bool(((t > 0) & (t < 1)).all()):
        return
    sign = "positive" if bool((t > 0).all()) else "negative"
    for name, factor in (("every second entry negated", -1.0), ("every second entry exactly 0", 0.0)):
        value = t.clone(memory_format=torch.contiguous_format).reshape(-1)
        value[::2] *= factor
        yield Content(leaf.path, name, value.reshape(t.shape), f"{leaf.path} is {sign}")


def _of_signs(leaf: Leaf, probe: Probe) -> Iterator[Content]:
    """The other sign for targets that are all 1, unless the code tells 0 and 1 apart: what is multiplied by them shows no sign."""
    t = leaf.template.detach()
    if _TARGET.search(leaf.path) and bool((t == 1).all()) and not _tells_classes_apart(probe, leaf.path):
        value = t.clone(memory_format=torch.contiguous_format).reshape(-1)
        value[::2] = -1
        yield Content(leaf.path, "every second entry -1", value.reshape(t.shape), f"every entry of {leaf.path} is 1")


def _tells_classes_apart(probe: Probe, name: str) -> bool:
    """Whether forward compares an argument with something, or takes it from 1, as targets of 0 and 1 are taken."""
    function = probe.target.described
    if function is None:
        return True
    for method in called_by(function, function.forward, levels=LEVELS):
        tree = syntax_of(method)
        for node in ast.walk(tree) if tree is not None else ():
            parts: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant):
                parts = [node.right]
            if any(isinstance(inner, ast.Name) and inner.id == name for part in parts for inner in ast.walk(part)):
                return True
    return False


def _of_indices(leaf: Leaf, evaluator: Evaluator, ignored: dict[str, int]) -> Iterator[Content]:
    t = leaf.template
    flat = t.reshape(-1)
    sizes = {n for other in evaluator.leaves for n in other.template.shape}
    for name, number in ignored.items():
        yield Content(leaf.path, f"every entry exactly {name} = {number}", torch.full_like(t, number))
    if int(flat.min()) < 0:
        return
    if t.dim() == 1 and int(flat[0]) == 0 and bool((flat.diff() >= 0).all()) and int(flat[-1]) in sizes:
        for i in range(1, flat.numel() - 1)[-2:]:
            yield Content(leaf.path, f"segment {i - 1} empty", _with(t, slice(i, i + 1), int(flat[i - 1])))
        return
    if t.dim() == 1 and int(flat.sum()) in sizes:
        emptied = flat.clone()
        emptied[0] += emptied[-1]
        emptied[-1] = 0
        yield Content(leaf.path, "the last count 0", emptied)
    if t.dim() and int(flat.max()) > 1 and any(leaf.template.shape == t.shape for leaf in evaluator.wanted):
        # Below minus the largest size, so that forward refuses them where they point at entries.
        below = -1 - max(sizes)
        yield Content(leaf.path, f"every second entry below {below + 1}", _with(t, slice(0, None, 2), below - flat[::2]), doubtful=True)
    for classes in _classes(t, evaluator):
        yield Content(leaf.path, f"some entries {classes}, one past the last class", _with(t, slice(0, None, 3), classes), doubtful=True)
    rows = flat.reshape(1, -1) if t.dim() == 1 else t.reshape(-1, t.shape[-1])
    distinct = rows.shape[1] > 1 and all(row.unique().numel() == row.numel() for row in rows)
    contract = f"the entries of {leaf.path} are distinct" if distinct else ""
    if flat.unique().numel() > 1:
        yield Content(leaf.path, "the smallest entry for the largest", t.where(t != t.max(), t.min()), contract)
        yield Content(leaf.path, "every entry equal", torch.full_like(t, int(flat[0])), contract)


def _classes(labels: Tensor, evaluator: Evaluator) -> set[int]:
    """How many classes there are, where labels point into the last axis of an input; forward may take the number itself for none of them."""
    rows = {leaf.template.shape[-1] for leaf in evaluator.wanted if leaf.template.dim() > 1 and leaf.template.shape[:-1] == labels.shape}
    return {n for n in rows if int(labels.max()) < n}


def _with(t: Tensor, where: slice, number: int | Tensor) -> Tensor:
    flat = t.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    flat[where] = number
    return flat.reshape(t.shape)


def _ignored(probe: Probe) -> dict[str, int]:
    """Return the whole numbers, passed or by default, whose name says that entries equal to them do not count."""
    found = {path: int(value) for path, value in numbers_among(probe.exact).items() if value == int(value) and _IGNORED.search(path)}
    function = probe.target.described
    if function is not None:
        for p in inspect.signature(inspect.unwrap(function.forward)).parameters.values():
            if _IGNORED.search(p.name) and isinstance(p.default, int) and not isinstance(p.default, bool):
                found.setdefault(p.name, p.default)
    return found
