"""Time on a CUDA device: events between replays of captured graphs, or between eager calls where the op cannot be captured."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Call, outputs_of
from .measure import Probe, Times

WARM = 3


def device_probe(call: Call) -> tuple[Probe, str]:
    """Return a probe of the device's own time, and a note on how it was taken where the host's time is in it; empty where it is not."""
    _warm(call)
    try:
        return _captured(call), ""
    except RuntimeError as error:
        torch.cuda.synchronize()
        first = (str(error).splitlines() or [""])[0]
        return _eager(call), f"{call.name} cannot be captured as a CUDA graph ({first}): its times include gaps between kernels"


def repeated(call: Callable[[], object]) -> Probe:
    """Return a probe of the device's time for one launch, many launched at once."""
    call()

    def run(count: int) -> Times:
        start, end = _event(), _event()
        start.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e-3 / count, 0.0

    return run


def _warm(call: Call) -> None:
    """Run on a side stream, which a capture needs; libraries allocate their workspaces and kernels are built."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM):
            call.once()
    torch.cuda.current_stream().wait_stream(stream)


def _captured(call: Call) -> Probe:
    forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(forward):
        args, kwargs = call.arguments()
        live = outputs_of(call.fn(*args, **kwargs))
    if live:
        with torch.cuda.graph(backward, pool=forward.pool()):
            gradients = torch.autograd.grad(live, call.roots, call.cotangents, allow_unused=True)
        return _between(forward.replay, backward.replay, keep=gradients)
    return _between(forward.replay, None)


def _eager(call: Call) -> Probe:
    result: list[torch.Tensor] = []

    def forward() -> None:
        result[:] = outputs_of(call.forward())

    return _between(forward, (lambda: call.backward(result)) if call.differentiable else None)


def _between(forward: Callable[[], object], backward: Callable[[], object] | None, keep: object = None) -> Probe:
    def run(count: int) -> Times:
        marks = [(_event(), _event(), _event()) for _ in range(count)]
        for start, middle, end in marks:
            start.record()
            forward()
            middle.record()
            if backward is not None:
                backward()
            end.record()
        torch.cuda.synchronize()
        took = [(start.elapsed_time(middle), middle.elapsed_time(end)) for start, middle, end in marks]
        return sum(f for f, _ in took) * 1e-3 / count, (sum(b for _, b in took) * 1e-3 / count if backward is not None else 0.0)

    run.keep = keep  # type: ignore[attr-defined]  # the memory that a replay writes to must stay alive
    return run


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
