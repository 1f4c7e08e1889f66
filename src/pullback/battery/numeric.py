"""Difference quotients per output element, as intervals: what one-sided derivatives allow, with measured noise and truncation.

Outputs and inputs are handled as flat float64 vectors; a complex number counts as its real and imaginary part, so that the real inner product
of two vectors is the pairing that autograd uses, Re(conj(u)·y).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import tolerance

Vector = Callable[[Mapping[str, Tensor] | None], Tensor]
"""Evaluates the op with some inputs replaced, returns its floating outputs as one flat float64 vector."""

_STENCIL = (-2, -1, 1, 2)
_SHRINK = 32


LEAST_EIGENVALUE = 0.1
_WITH_EIGENVALUES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return all entries of `tensors` as one float64 vector on the CPU, complex ones as pairs; it may share memory with a single tensor."""
    parts = [(torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).reshape(-1).to("cpu", torch.float64) for t in tensors]
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def scale_of(tensor: Tensor) -> float:
    """Return the largest finite magnitude of a tensor's entries, 1.0 where all are zero."""
    if tensor.numel() == 0:
        return 1.0
    magnitude = tensor.detach().abs().to(torch.float64)
    largest = float(torch.where(torch.isfinite(magnitude), magnitude, 0.0).max())
    return largest or 1.0


@dataclass(slots=True)
class Slopes:
    """Derivatives of every output element along one direction of one input.

    Args:
        low: Smaller of the one-sided derivatives; equal to `high` where the function is smooth.
        high: Larger one.
        slack: Half-width from truncation, added up linearly over elements.
        noise: Standard deviation from rounding, added up in quadrature.
        measured: Whether the element could be measured at all.
        displacement: The input's effective displacement, flat: what the gradient is paired with.
        relative_noise: Noise of the forward relative to its values.
        rough: Whether differences of neighbouring steps disagree, as they do where a kink or jump lies inside the stencil.
    """

    low: Tensor
    high: Tensor
    slack: Tensor
    noise: Tensor
    measured: Tensor
    displacement: Tensor
    relative_noise: float
    rough: Tensor

    def bounds(self, cotangent: Tensor) -> tuple[float, float, float]:
        """Return the least and greatest value of <cotangent, derivative> over measured elements, and the tolerance around them."""
        u = torch.where(self.measured, cotangent, 0.0)
        low = torch.where(u >= 0, u * self.low, u * self.high)
        high = torch.where(u >= 0, u * self.high, u * self.low)
        pick = self.measured
        tol = (u.abs() * self.slack)[pick].sum() + tolerance.SIGMAS * (u * self.noise)[pick].square().sum().sqrt()
        return float(low[pick].sum()), float(high[pick].sum()), float(tol)


def slopes(evaluate: Vector, path: str, x: Tensor, direction: Tensor, centre: Tensor, known_noise: float = 0.0) -> Slopes:
    """Return the derivatives of every output element along `direction` of the input at `path`.

    The five-point stencil is tried with steps that shrink by 32; each element keeps the result with the tightest tolerance. If the forward turns
    out to be noisier than float64 (it works in float32 inside, or only takes float32), the step grows to match.

    Args:
        evaluate: The op.
        path: Which input moves.
        x: Its value.
        direction: Signed direction of x's shape, entries of order one.
        centre: ``evaluate(None)``.
        known_noise: Relative noise that the forward has for sure, where it is known to work in fewer digits than its inputs have.
    """
    line = _Line(evaluate, path, x, direction, centre)
    step = tolerance.BASE_STEP * line.scale
    values, shared = line.values(step), _typical
    best = _derived(values, shared)
    if best.relative_noise > 1e-12 and not known_noise and _shrinks(best, line):
        shared = _none
        best = _derived(values, shared)
    coarse = max(best.relative_noise, tolerance.eps(x.dtype), known_noise)
    if coarse > 1e-12:
        return _noisy(line, max(known_noise, tolerance.eps(x.dtype) / 4), coarse)
    last = best
    for _ in range(2):
        if _sharp(best):
            break
        step /= _SHRINK
        finer = _derived(line.values(step), shared)
        best, last = _without(_tighter(best, finer), _jumps(last, finer)), finer
    return best


@dataclass(frozen=True, slots=True)
class _Values:
    """The outputs at five places along a line, by how many steps away they are, and how far the input really moved for one step."""

    f: Mapping[int, Tensor]
    step: float
    displacement: Tensor

    @property
    def wiggle(self) -> Tensor:
        """What a polynomial of third degree leaves of them, as a standard deviation: rounding, a kink or a jump."""
        f = self.f
        return (f[-2] - 4 * f[-1] + 6 * f[0] - 4 * f[1] + f[2]).abs() / 70**0.5


@dataclass(frozen=True, slots=True)
class _Line:
    """An op along one direction of one input."""

    evaluate: Vector
    path: str
    x: Tensor
    direction: Tensor
    centre: Tensor

    @property
    def scale(self) -> float:
        return scale_of(self.x)

    def values(self, step: float) -> _Values:
        moved = {k: self.x + (k * step) * self.direction.to(self.x) for k in _STENCIL}
        found = {k: self.evaluate({self.path: value}) for k, value in moved.items()}
        return _Values({0: self.centre, **found}, step, central4({k: flat([moved[k]]) for k in _STENCIL}, step))


Shared = Callable[[Tensor], Tensor]
"""From what outputs leave of a polynomial, the rounding noise that all of them have at least."""


def _typical(wiggle: Tensor) -> Tensor:
    finite = wiggle[torch.isfinite(wiggle)]
    return finite.median() if finite.numel() else torch.zeros(())


def _none(wiggle: Tensor) -> Tensor:
    return wiggle.new_zeros(())


def _jumps(wide: Slopes, narrow: Slopes) -> Tensor:
    """Where one-sided differences grow as fast as the step shrinks: forward jumps at the point itself, be it by ever so little."""
    before, after = wide.high - wide.low, narrow.high - narrow.low
    return (before > 0) & (after > _SHRINK / 2 * before)


def _without(found: Slopes, left_out: Tensor) -> Slopes:
    found.measured = found.measured & ~left_out
    return found


def _shrinks(found: Slopes, line: _Line) -> bool:
    """Return whether what looks like noise shrinks with the step, as kinks in most outputs do and rounding does not."""
    smaller = _derived(line.values(tolerance.BASE_STEP * line.scale / _SHRINK), _typical)
    return bool(smaller.noise.numel()) and float(smaller.noise.nanmedian()) / _SHRINK < float(found.noise.nanmedian()) / 4


def _noisy(line: _Line, known_noise: float, coarse: float) -> Slopes:
    """One wide stencil; its noise is the largest of three neighbouring ones, and elements with a kink inside it are left out."""
    step = tolerance.noisy_step(coarse) * line.scale
    wide, *others = (_derived(line.values(factor * step), _typical, known_noise) for factor in (1.0, 0.9, 0.8))
    for other in others:
        wide.noise = torch.maximum(wide.noise, other.noise)
    wide.measured = wide.measured & ~wide.rough
    wide.relative_noise = max(wide.relative_noise, coarse)
    return wide


def _sharp(found: Slopes) -> bool:
    size = found.low.abs().clamp(max=1e300)
    return bool((found.measured & (found.slack <= 1e-6 * (size + size.max() if size.numel() else size))).all())


def _tighter(a: Slopes, b: Slopes) -> Slopes:
    first = torch.where(a.measured, a.slack + a.noise, torch.inf)
    second = torch.where(b.measured, b.slack + b.noise, torch.inf)
    use = second < first
    pick = lambda left, right: torch.where(use, right, left)  # noqa: E731
    return Slopes(
        pick(a.low, b.low),
        pick(a.high, b.high),
        pick(a.slack, b.slack),
        pick(a.noise, b.noise),
        a.measured | b.measured,
        a.displacement,
        a.relative_noise,
        pick(a.rough, b.rough),
    )


def _derived(values: _Values, shared: Shared, known_noise: float = 0.0) -> Slopes:
    f, f0, step = values.f, values.f[0], values.step
    if any(v.shape != f0.shape for v in f.values()):
        none = torch.zeros_like(f0)
        never = torch.zeros_like(f0, dtype=torch.bool)
        return Slopes(none, none, none, none, never, values.displacement, 0.0, never)
    central = (f[1] - f[-1]) / (2 * step)
    fourth = central4(f, step)
    right = (-3 * f0 + 4 * f[1] - f[2]) / (2 * step)
    left = (3 * f0 - 4 * f[-1] + f[-2]) / (2 * step)
    truncation = (fourth - central).abs()
    wiggle = values.wiggle
    floor = max(tolerance.eps(torch.float64), known_noise) * f0.abs()
    pooled = shared(wiggle)
    sigma = torch.maximum(torch.maximum(floor, pooled), torch.minimum(wiggle, 4 * torch.maximum(pooled, floor)))
    size = max(map(_largest, f.values()))
    noise = sigma / step
    kink = (right - left).abs() > 4 * (2 * truncation + 4 * noise)
    ahead, behind = (f[1] - f0) / step, (f0 - f[-1]) / step
    one_sided = torch.maximum((right - ahead).abs(), (left - behind).abs())
    low = torch.where(kink, torch.minimum(left, right), fourth)
    high = torch.where(kink, torch.maximum(left, right), fourth)
    slack = torch.where(kink, one_sided, truncation)
    unlike = ((f[1] - 2 * f0 + f[-1]) - (f[2] - 2 * f0 + f[-2]) / 4).abs() / step
    third = (f[2] - 2 * f[1] + 2 * f[-1] - f[-2]).abs() / (2 * step)
    steepest = torch.stack([left, right, ahead, behind]).abs().amax(0)
    rough = torch.maximum(unlike, third) > tolerance.ROUGH * steepest + tolerance.SIGMAS * noise
    finite = torch.isfinite(low) & torch.isfinite(high) & torch.isfinite(slack)
    jump = torch.maximum(high - low, slack) * step > size / 64
    return Slopes(low, high, slack, noise, finite & ~jump, values.displacement, float(pooled) / size if size else 0.0, rough)


def central4(f: Mapping[int, Tensor], step: float) -> Tensor:
    """The fourth-order central difference, from differences, so that equal values give exactly zero."""
    return (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * step)


def _largest(values: Tensor) -> float:
    finite = values[torch.isfinite(values)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def is_definite(x: Tensor) -> bool:
    """Return whether a tensor holds symmetric positive definite matrices of more than one row, which nobody draws by chance."""
    if x.dim() < 2 or x.shape[-1] < 2 or x.shape[-1] != x.shape[-2] or x.layout is not torch.strided or x.dtype not in _WITH_EIGENVALUES:
        return False
    matrix = x.detach()
    return bool(torch.allclose(matrix, matrix.mH)) and bool((torch.linalg.cholesky_ex(matrix).info == 0).all())


def made_definite(x: Tensor) -> Tensor:
    """Return the symmetric part of matrices, their eigenvalues lifted where they would not be positive."""
    matrix = (x.detach() + x.detach().mH) / 2
    least = torch.linalg.eigvalsh(matrix)[..., :1, None]
    wanted = LEAST_EIGENVALUE * max(scale_of(matrix), LEAST_EIGENVALUE)
    return matrix + (wanted - least).clamp(min=0) * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
