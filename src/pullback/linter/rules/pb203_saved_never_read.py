"""PB203."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import AttributeRead, SavedRead, Test, Use, Write
from ..facts import ClassFacts
from ..rule import Hit, Rule, named


class SavedNeverRead(Rule):
    """A tensor is saved for backward and never used there.

    Why it matters:
        It stays in memory until backward has run, for nothing; often it shows that a term was forgotten.

    How it is measured:
        Each saved position is followed through unpacking, indexing and helpers; a position that takes part in
        nothing, not even by its shape, is reported.

    Instead:
        Do not save it; for a shape or dtype keep that on ctx.
    """

    code = "PB203"
    name = "saved-never-read"
    severity = "warning"
    bad = """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad_output):
        x, s = ctx.saved_tensors
        return grad_output * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))
"""
    good = """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * s * (1 + x * (1 - s))
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        saved = facts.memory.saved
        if not facts.whole or facts.escapes or not saved or not facts.gradients or not facts.saves:
            return
        if b"grad_fn" in facts.source.data or _mentioned_by_siblings(facts):
            return
        used = {
            r.key
            for m in facts.methods
            for e in m.record.events
            if isinstance(e, (Use, Test, Write, AttributeRead))
            for r in _value(e).all_refs()
            if r.root == "saved"
        }
        used |= {"*" for m in facts.methods for e in m.of(Use) if e.value.sequence and e.value.sequence[0] == "saved"}
        for form in facts.gradients:
            used |= {r.key for r in form.value.all_refs() if r.root == "saved"}
        if "*" in used:
            return
        unused = [i for i, v in enumerate(saved) if i not in used and not v.is_none]
        reads = [e for m in facts.methods for e in m.of(SavedRead)]
        if not unused:
            return
        save = facts.saves[0]
        if save.via:
            return
        names = [self._name(facts, i) for i in unused]
        verb = "are" if len(names) > 1 else "is"
        rest = "never reads ctx.saved_tensors" if not reads else "never uses " + ("them" if len(names) > 1 else "it")
        yield Hit(
            save.site, f"{named(names)} {verb} saved in {facts.name}.forward, but backward {rest}", fix="do not save what backward does not need"
        )

    def _name(self, facts: ClassFacts, index: int) -> str:
        call = facts.saves[0].node
        arguments = getattr(call, "args", [])
        return facts.text(arguments[index]) if index < len(arguments) and len(arguments) == len(facts.memory.saved or ()) else f"saved tensor {index}"


def _value(event: Use | Test | Write | AttributeRead):
    return event.target if isinstance(event, Write) else event.value


def _mentioned_by_siblings(facts: ClassFacts) -> bool:
    """Whether another class of the file derives from this one, and so may read what it saves."""
    return any(any(d.node is facts.node for d in facts.project.bases(o.source, o.node)) for o in facts.siblings if o is not facts)
