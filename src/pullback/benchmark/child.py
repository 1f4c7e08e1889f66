"""The process that `pullback bench` measures in: what crashes here does not take the command with it.

Started as ``python -m pullback.benchmark.child REQUESTS MESSAGES STACK``: two file descriptors, and a file for the Python stack of a crash. It reads
one request, a line of JSON, and writes messages, lines of JSON too: ``at`` before every step, and in the end ``result``, ``failed`` or ``usage``.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..battery.child import die_with_parent
from ..report.clean import clean


class UsageError(Exception):
    """Raised for a request that names something that is not there."""


def main() -> None:
    requests, messages, stack = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    die_with_parent()
    trace = open(stack, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends, however it does
    faulthandler.enable(trace, all_threads=False)
    os.dup2(2, 1)  # what the benched code prints is no result

    def send(**message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(messages, data) :]

    with os.fdopen(requests, encoding="utf-8") as stream:
        request = json.loads(stream.readline())
    from .call import BenchError

    try:
        send(result=measured(request, send))
    except UsageError as error:
        send(usage=str(error))
    except BenchError as error:
        send(failed=str(error))


def measured(request: Mapping[str, Any], send: Callable[..., None]) -> str:
    """Return the JSON of the benchmark that a request asks for.

    Raises:
        UsageError: for names that are not there.
        BenchError: if what is benched raises.
    """
    import torch

    from .compare import bench

    case = _case(request, send)
    against = {name: value for spec in request["against"] for name, value in [contender(spec, case)]} or None
    return bench(
        case,
        against=against,
        sizes=request["sizes"],
        dtype=getattr(torch, request["dtype"]) if request["dtype"] else None,
        device=request["device"],
        threads=request["threads"],
        seconds=request["seconds"],
        seed=request["seed"],
        progress=lambda what, done, total: send(at=what, done=done, total=total),
    ).to_json(indent=None)


def contender(spec: str, case: Any) -> tuple[str, Any]:
    """Return name and callable of ``FILE::NAME``, ``pkg.mod.name``, ``reference``, or ``compile:`` and one of these.

    Raises:
        UsageError: for something else.
    """
    import torch

    if spec.startswith("compile:"):
        name, fn = contender(spec.removeprefix("compile:"), case)
        return f"compiled {name}", torch.compile(fn)
    if spec == "reference":
        reference = case.declaration.reference
        if reference is None:
            raise UsageError("--against reference: no reference is declared; name a callable: FILE::NAME or torch.nn.functional.silu")
        return spec, reference
    if "::" in spec:
        subject = _subject(spec, None, {}, 0)[1]
        return subject.short, subject.target
    return spec.rpartition(".")[2], _imported(spec)


def _imported(spec: str) -> Any:
    parts = spec.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[count:]:
                value = getattr(value, part)
        except AttributeError:
            break
        if callable(value):
            return value
        raise UsageError(f"--against {spec}: this is a {type(value).__name__}; a callable is needed")
    raise UsageError(f"--against {spec}: write FILE::NAME, the dotted name of a callable such as torch.nn.functional.silu, or reference")


def _case(request: Mapping[str, Any], send: Callable[..., None]) -> Any:
    from ..battery.samples import collect, describe
    from .call import BenchError

    send(at=f"importing {request['target']}", done=0, total=0)
    loaded, subject = _subject(request["target"], request["cases"], request["declare"], request["seed"])
    send(at=f"sample inputs of {subject.short}", done=0, total=0)
    samples, problem = collect(loaded, subject, request["seed"])
    samples = [sample for sample in samples if not sample.only]
    if not samples:
        evidence = [e.got for f in problem.findings for e in f.evidence] if problem else []
        reason = evidence or [f.message for f in problem.findings] if problem else []
        raise BenchError(f"no sample inputs for {subject.short}: {clean((reason or ['none were found'])[0], limit=500)}")
    if request["case"] >= len(samples):
        listed = "\n".join(f"  {i}  {describe(sample)}" for i, sample in enumerate(samples))
        raise UsageError(f"--case {request['case']}: {subject.short} has {len(samples)} samples, numbered from 0\n{listed}")
    return samples[request["case"]]


def _subject(spec: str, cases: str | None, configured: Mapping[str, Any], seed: int) -> tuple[Any, Any]:
    from ..battery.discover import CasesError, UnknownNameError, load, with_subjects_of_cases
    from ..battery.targets import TargetError, parse_targets

    try:
        target, *others = parse_targets([spec])
        loaded = None if others else with_subjects_of_cases(load(target, cases=cases, configured=configured), seed)
    except (TargetError, UnknownNameError, CasesError) as error:
        raise UsageError(clean(error, keep_newlines=True)) from error
    except Exception as error:
        raise UsageError(f"{spec} cannot be imported: {type(error).__name__}: {clean(error, limit=500)}") from error
    names = [subject.short for subject in loaded.subjects] if loaded else []
    if loaded is None or len(names) != 1:
        raise UsageError(f"one op is benched at a time; name it: {spec.partition('::')[0]}::NAME" + (f", one of {', '.join(names)}" if names else ""))
    return loaded, loaded.subjects[0]


if __name__ == "__main__":
    main()
