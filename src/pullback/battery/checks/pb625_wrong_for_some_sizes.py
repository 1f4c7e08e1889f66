"""PB625."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...capture.source import called_by, text_of
from ...report.finding import Evidence, Finding, Severity
from ..base import Check, Skipped
from ..branches import surrogate_unseen
from ..locate import locate_at
from ..more_axes import Reranked, other_ranks, symmetric_only
from ..one_number import Reshaped, refused_shapes
from ..probe import Probe
from ..refusals import blames_torch
from ..settings_at_sizes import Together, settings_at_sizes
from ..size_sweep import Sweep
from ..size_trials import Trial
from ..sizes import Resizer
from ..words import gradient_name

BUDGET = 0.8
THOROUGH_BUDGET = 5.0
ENOUGH = 2
"""At how many other sizes of an axis the gradient must be right for an error at one of them to be no matter of what the sizes have to be."""
_HALVES = re.compile(
    r"chunk\((\w+, *)?(chunks=)?2\b|// ?2\b|int\([^)]*/ ?2\b|::2\b|,? ?2\)\.unbind|unflatten\(|view_as_complex|tensor_split\(|: ?2 ?\* ?\w+\]"
)

_PARITY = re.compile(r"% ?2\b(?!\.)|& ?1\b(?!\.)|\bodd\b", re.IGNORECASE)
"""How code that splits in halves says that it knows of odd sizes, and takes them."""


class WrongForSomeSizes(Check):
    """backward is wrong, or raises, at sizes other than those of the sample.

    Why it matters:
        The tail of a block, the second chunk of a batch, an index that wraps at 16 or 32 bits: such code is right for the sizes its author tried.

    How it is measured:
        Each size of the arguments is changed, equal sizes (and numbers among the arguments that equal them) together: 1, odd, just above powers of
        two, 1025, and more than 65,536 elements where time allows. New contents are drawn from the old ones. The gradient is judged by value
        wherever forward takes the size and the gradient is right at the sample's; the smallest failing size is found by bisection. Then one of two
        equal axes of a tensor changes alone, and an axis of size 1 grows, where forward takes it and what was added changes its results: a wrong
        value there is a warning. Where the code asks whether an argument has one entry, it gets one while the others keep their sizes. Two axes of
        two tensors that forward takes only together change while others that are as long stay. Last, arguments get an axis more, in front or at the
        end, and one less where the code asks for their rank: a wrong value is a warning, and so is an error of backward where the code asks for the
        rank, or where forward counts its axes from the end. The gradient of a matrix that holds for symmetric ones only is judged for those. A
        differentiated argument of one number is tried as a tensor without dimensions and as one of shape [1]: an error of backward is a note where
        forward gives the same, since one of the shapes may never be meant. Where nothing was found, other settings (flags, words, small whole
        numbers) are tried together with two odd sizes (a warning).

    Example:
        ``for i in range(0, n, step): grad_w = ...`` (overwritten by each chunk); ``n // 64`` blocks; ``row * width`` in 16 bits.

    Instead:
        Cover the tail with a mask or a last, smaller block; accumulate over chunks; compute offsets in 64 bits.

    Limits:
        The sweep stops after half a second (5 s with ``--thorough``). Sizes that belong together without being equal (n and n - 1, n and n / 2)
        change alone: an error of backward there is a note, unless the size is the batch (an error), or other sizes of the same axis are right (a
        warning). It is a note, too, where a number among the arguments that pointed at an entry (``padding_idx``) points at none any more, or where
        forward takes the size only by cutting up the elements anew. A gradient that is wrong for every odd size and right for every even one is a
        note where forward splits in halves and does not ask for odd sizes (rotary embeddings, gated units), and so is one that is wrong only for
        sizes below a number among the arguments (a budget, a count of neighbours).
    """

    code = "PB625"
    name = "wrong-for-some-sizes"
    severity = "error"
    stage = 4

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.explained("", "PB611"):
            raise Skipped("reads an argument's memory behind its back (PB611), so that other inputs cannot be right")
        sweep = Sweep(probe, probe.seconds(THOROUGH_BUDGET if probe.settings.thorough else BUDGET), _judged(probe))
        found = False
        for trial in sweep.run():
            found = True
            yield self._wrong(probe, trial) if trial.verdict == "wrong" else self._crash(probe, trial)
        if sweep.values or symmetric_only(probe):
            for other in other_ranks(probe):
                found = True
                yield self._of_rank(probe, other)
        if sweep.values and not found and not halves_in_forward(probe):
            for together in settings_at_sizes(probe, sweep):
                found = True
                yield self._together(probe, together)
        for reshaped in refused_shapes(probe):
            found = True
            yield self._of_shape(probe, reshaped)
        if not found and not sweep.tried:
            raise Skipped("forward takes no other size")

    def _of_rank(self, probe: Probe, other: Reranked) -> Finding:
        where = f"{' and '.join(other.paths)} of {other.rank} axes"
        evidence = [] if other.error is None else [Evidence(f"with {where}", other.error.short, "a gradient, or a refusal in forward")]
        what = "raises"
        path = None
        if other.edge is not None:
            path = other.edge.verdict.path
            spot = locate_at(probe, path, other.evaluator)
            evidence = [
                other.edge.verdict.evidence(f"with {where}, {path} moved along a random direction"),
                *([] if spot is None else [spot.evidence]),
            ]
            what = f"returns a wrong {gradient_name(path)}"
        return self.finding(
            probe,
            f"{probe.backward_name} {what} with {where}, which forward accepts; with {other.usual} it is right",
            severity="warning",
            evidence=evidence,
            cause="backward counts or reduces axes as the sample has them",
            fix="Fold leading axes alike in forward and backward, or refuse other ranks in forward.",
            path=path,
        )

    def _of_shape(self, probe: Probe, other: Reshaped) -> Finding:
        where = f"{other.path} of shape {list(other.shape)}"
        name = gradient_name(other.path)
        return self.finding(
            probe,
            f"{probe.backward_name} raises with {where}, with which forward gives the same as with {list(other.usual)}",
            severity="note",
            evidence=[Evidence(f"with {where}", other.error.short, f"{name} of shape {list(other.shape)}")],
            cause=f"backward gives {name} the shape that {other.path} has in the sample, whatever shape it has",
            fix=f"Return {name}.reshape({other.path}.shape), or refuse the shape in forward.",
            path=other.path,
        )

    def _together(self, probe: Probe, together: Together) -> Finding:
        where = f"{together.variant.name} and {together.symbol.said} = {together.size}"
        value, error = together.value, together.error
        what = "raises" if value is None else f"returns a wrong {gradient_name(value.path)}"
        shown = [] if error is None else [Evidence(f"with {where}", error.short, "a gradient, or a refusal in forward")]
        return self.finding(
            probe,
            f"{probe.backward_name} {what} with {where}; with either of the two it is right",
            severity="warning",
            evidence=shown if value is None else [value.evidence(f"with {where}, {value.path} moved along a random direction")],
            cause=f"what {together.variant.path} changes at the end of an axis (a shorter window, a padded tail) is not in backward",
            fix="Compute in backward how many entries forward took there, or refuse such sizes in forward.",
            path=None if value is None else value.path,
        )

    def _wrong(self, probe: Probe, trial: Trial) -> Finding:
        value = trial.value
        assert value is not None
        name = gradient_name(value.path)
        there = Resizer(probe.exact).resized(trial.symbol, trial.size)
        spot = None if there is None else locate_at(probe, value.path, there)
        halves = trial.pairs and halves_in_forward(probe)
        stays = trial.symbol.stays
        severity: Severity = (
            "note" if halves or trial.below or not (trial.symbol.joint or stays) else "warning" if probe.case.invented or stays else "error"
        )
        return self.finding(
            probe,
            f"{probe.backward_name} returns a wrong {name} when {trial.symbol.said} is {trial.size}" + (f" and {stays}" if stays else ""),
            severity=severity,
            evidence=[
                value.evidence(f"{trial.symbol.said} = {trial.size}, {value.path} moved along a random direction{_right(trial)}"),
                *([] if spot is None else [spot.evidence]),
            ],
            attachments=None if spot is None else spot.attachments,
            cause="forward splits in halves, and every even size is right"
            if halves
            else f"the size is below {trial.below}; from there on every size is right"
            if trial.below
            else "backward takes one axis for another of the same size, or looks only at the first entry of an axis of size 1"
            if stays
            else "a block, chunk or index in backward fits only some sizes",
            fix="Refuse odd sizes in forward."
            if halves
            else "Refuse such sizes in forward."
            if trial.below
            else "Look for a loop that overwrites instead of adding, a tail that is left out, the size of another axis, or a narrow index.",
            path=value.path,
        )

    def _crash(self, probe: Probe, trial: Trial) -> Finding:
        assert trial.error is not None
        joint = trial.symbol.batch and trial.symbol.joint and trial.symbol.step == 1 and not (trial.by_chance or trial.unmeant)
        # A number that equals the size is no batch size but a resolution, a count of levels or knots: one of them is none.
        certain = joint and not (trial.symbol.numbers and trial.size == 1) and not blames_torch(trial.error)
        halves = trial.symbol.size % 2 == 0 and trial.size % 2 == 1 and not trial.symbol.batch and halves_in_forward(probe)
        now_and_then = trial.right >= ENOUGH and not halves and not trial.unmeant and not blames_torch(trial.error)
        meant = certain or now_and_then or (trial.symbol.asked and not trial.unmeant)
        severity: Severity = "error" if certain and probe.case.origin != "searched" else "warning" if meant else "note"
        torch = blames_torch(trial.error)
        return self.finding(
            probe,
            f"{probe.backward_name} raises when {trial.symbol.said} is {trial.size}"
            + (f" and {trial.symbol.stays}" if trial.symbol.stays else "")
            + ", which forward takes",
            severity=severity,
            evidence=[Evidence(f"{trial.symbol.said} = {trial.size}{_right(trial)}", trial.error.short, "a gradient, or a refusal in forward")],
            cause="a fault of torch's own operator, which the error names, not of the checked backward" if torch else trial.unmeant or None,
            certain=torch,
            fix="Refuse the size in forward, or treat it before that operator is reached."
            if torch
            else "Refuse the size in forward."
            if trial.unmeant
            else "Make backward take every size that forward takes, or refuse the size in forward.",
        )


def _right(trial: Trial) -> str:
    return "" if trial.last_right is None else f" (right at {trial.last_right})"


def halves_in_forward(probe: Probe) -> bool:
    """Whether forward, or a function of its module that it calls, splits an axis into two halves or into pairs, and nowhere asks for odd sizes."""
    function = probe.function
    if function is None:
        return False
    text = text_of(*called_by(function, function.forward))
    return _HALVES.search(text) is not None and _PARITY.search(text) is None


def _judged(probe: Probe) -> tuple[str, ...]:
    """The inputs whose gradients are right at the sample, so that a wrong one at another size is the size's fault."""
    if probe.declaration.deliberate or probe.nonlinearity is not None:
        return ()
    if any(probe.deliberate(leaf.path) for leaf in probe.exact.wanted):
        return ()
    return tuple(p for p, verdict in probe.value.inputs.items() if verdict.ok is True and not verdict.none and not surrogate_unseen(probe, p))
