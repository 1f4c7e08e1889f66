"""PB212."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Call
from ..facts import ClassFacts, Method
from ..rule import Hit, Rule

_SEEDS = frozenset(
    [
        "torch.manual_seed",
        "torch.seed",
        "torch.random.manual_seed",
        "torch.cuda.manual_seed",
        "torch.cuda.manual_seed_all",
        "random.seed",
        "numpy.random.seed",
    ]
)
_STATES = frozenset(["torch.set_rng_state", "torch.random.set_rng_state", "torch.cuda.set_rng_state", "torch.cuda.random.set_rng_state"])


class GlobalRandomState(Rule):
    """forward or backward sets the global random state.

    Why it matters:
        Everything random after it repeats itself: dropout masks, noise, the order of data.

    How it is measured:
        Calls of manual_seed and its like, and of set_rng_state without a get_rng_state in the same method, outside fork_rng.

    Instead:
        A `torch.Generator` of your own, or `torch.random.fork_rng()` around it.
    """

    code = "PB212"
    name = "global-random-state"
    severity = "warning"
    bad = """
class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seed):
        ctx.seed = seed
        torch.manual_seed(seed)
        return x * (torch.rand_like(x) > 0.5)

    @staticmethod
    def backward(ctx, grad_output):
        with torch.random.fork_rng():
            torch.manual_seed(ctx.seed)
            return grad_output * (torch.rand_like(grad_output) > 0.5), None
"""
    good = """
class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seed):
        ctx.seed = seed
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return x * (torch.rand_like(x) > 0.5)

    @staticmethod
    def backward(ctx, grad_output):
        with torch.random.fork_rng():
            torch.manual_seed(ctx.seed)
            return grad_output * (torch.rand_like(grad_output) > 0.5), None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward, facts.backward):
            keeps = any(e.name.endswith("get_rng_state") for e in method.of(Call))
            for event in method.of(Call):
                if event.via or any("fork_rng" in c or "fork" in c for c in event.contexts) or keeps:
                    continue
                name = facts.project.canonical(facts.source, event.name)
                if name in _SEEDS or name in _STATES:
                    yield self._hit(facts, method, event)

    def _hit(self, facts: ClassFacts, method: Method, event: Call) -> Hit:
        return Hit(
            event.node,
            f"{facts.name}.{method.name} sets the global random state (`{facts.text(event.node)}`)",
            fix="a torch.Generator, or torch.random.fork_rng() around it",
        )
