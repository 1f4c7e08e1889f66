"""All mutants: 25 right Functions times the faults that are meant for them."""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mutant_ops
import mutant_witness as witness
import torch
from mutant_source import extended, rewritten
from mutant_wrappers import BODIES, text_of

VALUE = frozenset({"PB501", "PB503", "PB510"})

SPECIAL: dict[str, tuple[Callable[..., bool], set[str]]] = {
    "strides ignored": (witness.cotangent_layout, {"PB604"}),
    "inputs' strides ignored": (witness.input_layout, {"PB605"}),
    "written grad_output": (witness.writes_cotangent, {"PB608"}),
    "stale gradient": (witness.remembers, {"PB614", "PB501", "PB503"}),
    "captured state": (witness.remembers, {"PB614", "PB611"}),
    "shared buffer": (witness.overwrites_result, {"PB614", "PB610", "PB501", "PB503"}),
    "second backward": (witness.second_backward, {"PB610", "PB609"}),
    "moves the random state": (witness.moves_random_state, {"PB615"}),
    "wrong when frozen": (witness.frozen, {"PB606"}),
    "needs_input_grad of another input": (witness.frozen, {"PB606"}),
    "undefined cotangent": (witness.undefined, {"PB607"}),
    "bypassed saved tensors": (witness.hides_residuals, {"PB612"}),
    "reference cycle": (witness.keeps_itself_alive, {"PB613"}),
    "single precision gradient": (witness.narrow_gradient, {"PB603"}),
    "odd sizes": (witness.larger, {"PB625"}),
    "last block": (witness.larger, {"PB625"}),
    "wrong gradient count": (witness.value, {"PB601"}),
    "wrong shape": (witness.value, {"PB602"}),
    "missing gradient": (witness.value, {"PB509"}),
    "wrong flag": (witness.other_arguments, {"PB501", "PB002", "PB602", "PB502"}),
    "optional argument": (witness.other_arguments, {"PB501", "PB601", "PB502"}),
    "nan at large values": (witness.at_large_values, {"PB502", "PB505"}),
    "missing dirty mark": (witness.writes_input, {"PB609"}),
    "wrong jvp": (witness.jvp, {"PB507"}),
    "global generator": (witness.value, {"PB615", "PB501", "PB503"}),
}

CAUSES = {
    "sign": "sign",
    "doubled": "constant-factor",
    "swapped gradients": "swapped-gradients",
    "ignored cotangent": "ignores-cotangent",
    "first element of the cotangent": "ignores-cotangent",
    "absolute cotangent": "cotangent-squared",
    "squared cotangent": "cotangent-squared",
    "clipped cotangent": "cotangent-as-mask",
    "partial rows": "partial-rows",
    "flipped": "permuted-gradient",
    "shifted": "permuted-gradient",
    "transposed": "permuted-gradient",
    "low precision inside": "low-precision-inside",
}


@dataclass(frozen=True)
class Mutant:
    """One wrong Function.

    Args:
        name: ``"swish-3: dropped factor"``.
        kind: The fault.
        cause: What a diagnosis must call it, or None where its vocabulary has no word.
        build: Makes the class.
        original: The right class.
        inputs: Makes arguments for a seed.
        wrong: Shows the fault without pullback.
        codes: Findings that name the fault fittingly.
    """

    name: str
    kind: str
    cause: str | None
    build: Callable[[], Any]
    original: Any
    inputs: Callable[..., tuple]
    wrong: Callable[..., bool]
    codes: frozenset[str]

    @property
    def is_value(self):
        """Whether the fault is a wrong value at the sample itself."""
        return self.codes == VALUE


@dataclass(frozen=True)
class Subject:
    """One right Function with its module."""

    name: str
    function: Any
    module: Any

    def inputs(self, seed=0):
        torch.manual_seed(seed + 11)
        return self.module.inputs()


@functools.cache
def subjects():
    found = []
    for info in sorted(pkgutil.iter_modules(mutant_ops.__path__), key=lambda i: i.name):
        module = importlib.import_module(f"mutant_ops.{info.name}")
        (function,) = (
            v for v in vars(module).values() if isinstance(v, type) and issubclass(v, torch.autograd.Function) and v.__module__ == module.__name__
        )
        found.append(Subject(info.name, function, module))
    return tuple(found)


@functools.cache
def mutants():
    return tuple(mutant for subject in subjects() for mutant in (*_rewritten(subject), *_wrapped(subject)))


def _rewritten(subject):
    for i, (kind, cause, *texts) in enumerate(subject.module.FAULTS):
        edits = list(zip(texts[::2], texts[1::2], strict=True))
        yield _mutant(subject, f"{subject.name}-{i}", kind, cause, functools.cache(functools.partial(rewritten, subject.function, edits)))


def _wrapped(subject):
    for kind in subject.module.WRAPPED:
        assert kind in BODIES, kind
        build = functools.cache(functools.partial(_extend, subject.function, kind))
        yield _mutant(subject, subject.name, kind, CAUSES.get(kind), build)


def _extend(function, kind):
    return extended(function, "Mutant", text_of(kind, function.__name__))


def _mutant(subject, name, kind, cause, build):
    wrong, codes = SPECIAL.get(kind, (witness.value, set(VALUE)))
    return Mutant(f"{name}: {kind}", kind, cause, build, subject.function, subject.inputs, wrong, frozenset(codes))
