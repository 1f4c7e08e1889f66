"""Is the value of the gradient right? A cheap first pass over all inputs, then the interval test for those that it cannot clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..report.finding import Evidence
from . import numeric, tolerance
from .evaluate import Evaluator, Outcome, UserCodeError
from .noisy import pooled
from .single import narrow_inside
from .tensors import copy_tensor, differentiable, random_like
from .words import interval

DIRECTIONS = 4
COTANGENTS = 2
SKETCHES = 1
SIGNED = (0.5, 1.0, 2.0)
_HALF = torch.tensor(0.5, dtype=torch.float64, device="cpu")


@dataclass(frozen=True, slots=True)
class InputVerdict:
    """What the value test says about the gradient of one input.

    Args:
        path: The input.
        ok: True, False, or None where nothing could be measured (`reason` says why).
        none: backward returned None for it in every try.
        moves: Whether the forward changes at all when the input moves a little.
        got: The paired number that backward gives, in the worst try.
        low: Least value that the difference quotients allow there.
        high: Greatest.
        tolerance: What was allowed around them.
        reason: Why nothing could be measured.
        noise: Relative noise of the forward.
        unseen: How large a relative error of the whole gradient could have gone unseen, where the forward is noisy; 0 elsewhere.
        narrow: Whether the gradient has only float32's digits although the inputs have more; it is then right to those.
    """

    path: str
    ok: bool | None
    none: bool = False
    moves: bool = True
    got: float = 0.0
    low: float = 0.0
    high: float = 0.0
    tolerance: float = 0.0
    reason: str = ""
    noise: float = 0.0
    narrow: bool = False
    unseen: float = 0.0

    @property
    def error(self) -> float:
        """Distance of `got` from what is allowed."""
        return max(self.low - self.got, self.got - self.high, 0.0) if self.got == self.got else float("nan")

    @property
    def excess(self) -> float:
        """How many times the tolerance the error is; infinite for NaN."""
        return self.error / self.tolerance if self.tolerance > 0 and self.error == self.error else float("inf")

    @property
    def expected(self) -> float:
        return (self.low + self.high) / 2

    def evidence(self, text: str) -> Evidence:
        """Return the comparison as evidence."""
        return Evidence(text, *interval(self.got, self.low, self.high), self.error, self.tolerance, tolerance.WHY_DIFFERENCE)


@dataclass(slots=True)
class ValueVerdict:
    """The verdicts of all inputs, and how they were reached."""

    inputs: dict[str, InputVerdict] = field(default_factory=dict)
    first_pass: bool = False

    @property
    def wrong(self) -> list[InputVerdict]:
        return [v for v in self.inputs.values() if v.ok is False]


@dataclass(slots=True)
class _Seen:
    """What difference quotients said about the gradient of one input so far.

    Args:
        moves: Whether the forward changes at all.
        measured: Whether an output element had a measurable slope.
        complete: Whether all had, but for those with a kink.
        noise: Relative noise of the forward, the largest so far.
        kinked: The largest share of output elements with a kink in the stencil, where the forward is noisy.
        unseen: As in `InputVerdict`.
        narrow: Whether every error so far is one of float32's digits.
        worst: What is furthest beyond its tolerance.
    """

    moves: bool = False
    measured: bool = False
    complete: bool = True
    noise: float = 0.0
    kinked: float = 0.0
    unseen: float = 0.0
    narrow: bool = True
    worst: InputVerdict | None = None

    def note(self, found: numeric.Slopes) -> None:
        self.noise = max(self.noise, found.relative_noise)
        self.moves = self.moves or bool(((found.low != 0) | (found.high != 0))[found.measured].any())
        if found.relative_noise > 1e-12 and found.rough.numel():
            self.kinked = max(self.kinked, float(found.rough.double().mean()))
        self.complete = self.complete and bool((found.measured | found.rough).all())
        self.measured = self.measured or bool(found.measured.any())


class ValueTest:
    """The value test of one call.

    Args:
        evaluator: The call, preferably in float64.
        seed: Chooses directions and cotangents.
        nonnegative: Whether only non-negative cotangents are used (for a backward that is not linear).
        leave: An absolute and a relative error of the Jacobian's entries that are let pass beyond what was measured.
    """

    def __init__(self, evaluator: Evaluator, *, seed: int = 0, nonnegative: bool = False, leave: tuple[float, float] = (0.0, 0.0)) -> None:
        self.evaluator = evaluator
        self.generator = torch.Generator().manual_seed(seed + 0x5A11)
        self.nonnegative = nonnegative
        self.leave = leave
        self.directions = 1 if evaluator.meter.heavy else DIRECTIONS
        self.outcome = evaluator.forward()
        self.carrying = self.outcome.carrying
        self.cotangents = [self.draw() for _ in range(COTANGENTS)]
        self._gradients: list[list[Tensor | None]] | None = None

    def draw(self) -> list[Tensor]:
        """Return one random signed cotangent (entries ±1/2, ±1, ±2) for each live output, laid out like it."""
        drawn = [random_like(y, self.generator, SIGNED) for y in self.outcome.live]
        return [d.abs() if self.nonnegative and not d.is_complex() else d for d in drawn]

    @property
    def gradients(self) -> list[list[Tensor | None]]:
        """Gradients of the wanted inputs for each cotangent.

        Raises:
            UserCodeError: if backward raises.
        """
        if self._gradients is None:
            last = len(self.cotangents) - 1
            self._gradients = [self.vjp(self.outcome, c, keep=i < last) for i, c in enumerate(self.cotangents)]
        return self._gradients

    def vjp(self, outcome: Outcome, cotangent: Sequence[Tensor], *, keep: bool = False) -> list[Tensor | None]:
        """Return gradients; a backward that refuses a second call gets a fresh forward."""
        try:
            return self.evaluator.vjp(self.evaluator.again(outcome), [copy_tensor(c) for c in cotangent], retain_graph=keep)
        except UserCodeError:
            return self.evaluator.vjp(self.evaluator.forward(), [copy_tensor(c) for c in cotangent])

    def evaluate(self, values: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the live outputs at other values of the inputs, flat."""
        outputs = self.evaluator.forward(values=values).outputs
        return numeric.flat([outputs[i].detach() for i in self.carrying if i < len(outputs) and differentiable(outputs[i])])

    def run(self) -> ValueVerdict:
        """Return the verdict on every wanted input.

        Raises:
            UserCodeError: if forward or backward raises at the given values.
        """
        verdict = ValueVerdict()
        cleared = self.first_pass()
        paths = [leaf.path for leaf in self.evaluator.wanted]
        verdict.first_pass = all(cleared.get(p, False) for p in paths)
        for path in paths:
            verdict.inputs[path] = InputVerdict(path, True) if cleared.get(path) else self.careful(path)
        return verdict

    def first_pass(self) -> dict[str, bool]:
        """Return for each input whether central differences along joint signed directions clear it."""
        leaves = self.evaluator.wanted
        if any(leaf.template.dtype not in (torch.float64, torch.complex128) for leaf in leaves):
            return {}
        step = tolerance.SKETCH_STEP
        u = torch.stack([numeric.flat(c) for c in self.cotangents])
        directions = [self._directions(leaf.template) for leaf in leaves]
        there, back = [], []
        for k, size in [*((k, step) for k in range(SKETCHES)), (0, 2 * step)]:
            moves = [size * d[k] for d in directions]
            there.append(self.evaluate({leaf.path: leaf.template + move for leaf, move in zip(leaves, moves, strict=True)}))
            back.append(self.evaluate({leaf.path: leaf.template - move for leaf, move in zip(leaves, moves, strict=True)}))
        if any(v.shape != u[0].shape for v in (*there, *back)):
            return {}
        numbers = u @ (torch.stack(there) - torch.stack(back)).T / (2 * step)
        truncation = 8 / 3 * (numbers[:, -1] / 2 - numbers[:, 0]).abs()
        allowed = tolerance.sketch_rounding((u * there[0]).norm(dim=1), step) + truncation
        total = torch.zeros_like(numbers[:, :-1])
        sharp = {}
        for i, (leaf, direction) in enumerate(zip(leaves, directions, strict=True)):
            column = [row[i] for row in self.gradients]
            if any(g is None for g in column):
                sharp[leaf.path] = False
                continue
            gradient = torch.stack([numeric.flat([g]) for g in column if g is not None])
            along = torch.stack([numeric.flat([d]) for d in direction])
            total += gradient @ along.T
            sharp[leaf.path] = bool((allowed <= tolerance.SHARP * (gradient * along[0]).norm(dim=1)).all())
        agree = bool(((total - numbers[:, :-1]).abs() <= allowed[:, None]).all())
        return {path: agree and is_sharp for path, is_sharp in sharp.items()}

    def _directions(self, template: Tensor) -> Tensor:
        return spread((SKETCHES, *template.shape), template.is_complex(), self.generator).to(template.device) * numeric.scale_of(template)

    def careful(self, path: str) -> InputVerdict:
        """Return the verdict of the interval test on one input.

        A disagreement counts only if a smaller step sees it too: a jump that happens to lie inside one stencil moves away in the next. Where the op
        turns out to make narrower tensors inside, it counts only if steps fit for single precision see it as well.
        """
        verdict = self._interval(path)
        double = next(leaf for leaf in self.evaluator.wanted if leaf.path == path).template.dtype in (torch.float64, torch.complex128)
        if verdict.ok is not False or not double or not narrow_inside(self.evaluator):
            return verdict
        return self._interval(path, known_noise=tolerance.eps(torch.float32))

    def _interval(self, path: str, known_noise: float = 0.0) -> InputVerdict:
        index = next(i for i, leaf in enumerate(self.evaluator.wanted) if leaf.path == path)
        x = self.evaluator.wanted[index].template
        centre = self.evaluate()
        seen = _Seen()
        for _ in range(self.directions):
            direction = spread(x.shape, x.is_complex(), self.generator)
            found = numeric.slopes(self.evaluate, path, x, direction, centre, known_noise)
            seen.note(found)
            if bool(found.measured.any()):
                for cotangent, gradient in self._pairs(found, index):
                    self._compare(seen, found, path, x, cotangent, gradient)
        return self._concluded(seen, path, index, x)

    def _compare(self, seen: _Seen, found: numeric.Slopes, path: str, x: Tensor, cotangent: list[Tensor], gradient: Tensor | None) -> None:
        low, high, allowed = found.bounds(numeric.flat(cotangent))
        got = float(_dot(gradient, found.displacement))
        size = float(_norm(gradient, found.displacement))
        allowed += (64 * tolerance.eps(x.dtype) + self.leave[1]) * size
        if self.leave[0]:
            allowed += self.leave[0] * float(numeric.flat(cotangent).norm() * found.displacement.norm())
        if seen.noise > 1e-12 and size > 0:
            seen.unseen = max(seen.unseen, allowed / size)
        candidate = InputVerdict(path, False, got=got, low=low, high=high, tolerance=allowed)
        if candidate.error <= allowed:
            return
        seen.narrow = seen.narrow and candidate.error <= allowed + tolerance.NARROW * size
        if seen.worst is None or candidate.excess > seen.worst.excess:
            seen.worst = candidate

    def _concluded(self, seen: _Seen, path: str, index: int, x: Tensor) -> InputVerdict:
        none = all(row[index] is None for row in self.gradients)
        verdict = InputVerdict(path, None, none, seen.moves, noise=seen.noise)
        worst = seen.worst
        if worst is not None and seen.narrow and x.dtype in (torch.float64, torch.complex128) and narrow_inside(self.evaluator):
            return replace(verdict, ok=True, narrow=True)
        if worst is not None and seen.kinked > tolerance.KINKED:
            return replace(verdict, reason="too many kinks for the step that the op's precision asks for")
        if worst is not None:
            return replace(verdict, ok=False, got=worst.got, low=worst.low, high=worst.high, tolerance=worst.tolerance)
        if not seen.measured:
            return replace(verdict, reason="no output element has a measurable slope at this point")
        verdict = replace(verdict, ok=True, unseen=seen.unseen)
        pools = seen.complete and seen.kinked <= tolerance.KINKED and seen.noise >= tolerance.NOISY and not self.nonnegative
        return self._pooled(verdict, index, x) if pools else verdict

    def _pooled(self, verdict: InputVerdict, index: int, x: Tensor) -> InputVerdict:
        found = pooled(self, verdict.path, index, x, verdict.noise)
        if found is None:
            return verdict
        allowed = found.allowed + sum(self.leave) * abs(found.got)
        if abs(found.got - found.expected) <= allowed:
            return replace(verdict, unseen=found.unseen)
        return replace(verdict, ok=False, got=found.got, low=found.expected, high=found.expected, tolerance=allowed, unseen=found.unseen)

    def forward(self) -> Outcome:
        """Return a fresh forward at the sample."""
        return self.evaluator.forward()

    def _pairs(self, found: numeric.Slopes, index: int) -> list[tuple[list[Tensor], Tensor | None]]:
        if bool(found.measured.all()):
            rows = zip(self.cotangents, self.gradients, strict=True)
            return [(c, None if row[index] is None else numeric.flat([row[index]])) for c, row in rows]  # type: ignore[list-item]
        masks = _split(found.measured, self.outcome.live)
        pairs: list[tuple[list[Tensor], Tensor | None]] = []
        for cotangent in self.cotangents:
            masked = [_masked(c, m) for c, m in zip(cotangent, masks, strict=True)]
            gradient = self.vjp(self.evaluator.forward(), masked)[index]
            pairs.append((masked, None if gradient is None else numeric.flat([gradient])))
        return pairs


def spread(shape: Sequence[int], is_complex: bool, generator: torch.Generator) -> Tensor:
    """Return a signed direction with magnitudes spread over [1/2, 1], so that errors of equal size and opposite sign do not cancel."""
    drawn = torch.rand((*shape, 2) if is_complex else tuple(shape), dtype=torch.float64, generator=generator).mul_(2).sub_(1)
    signed = drawn.mul(0.5).add_(torch.copysign(_HALF, drawn))
    return torch.view_as_complex(signed) if is_complex else signed


def _masked(cotangent: Tensor, mask: Tensor) -> Tensor:
    new = torch.empty_like(cotangent, memory_format=torch.preserve_format)
    return new.copy_(torch.where(mask.to(cotangent.device), cotangent, torch.zeros((), dtype=cotangent.dtype)))


def _split(flat_mask: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    masks, at = [], 0
    for y in outputs:
        width = 2 if y.is_complex() else 1
        part = flat_mask[at : at + width * y.numel()]
        at += width * y.numel()
        masks.append(part.reshape(*y.shape, 2).all(-1) if y.is_complex() else part.reshape(y.shape))
    return masks


def _dot(gradient: Tensor | None, direction: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.float64) if gradient is None else gradient @ direction


def _norm(gradient: Tensor | None, direction: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.float64) if gradient is None else (gradient * direction).norm()
