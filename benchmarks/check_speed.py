"""How long a check takes: the value test's first pass beside torch's gradcheck, and whole default checks of small ops.

    python benchmarks/check_speed.py [--rounds 31] [--skip-slow]

The first table is run in turn, round by round, on one thread, with the garbage collector off, and measured in the thread's own CPU time,
so that a busy machine does not blur it. Printed are medians; a ratio is the median of the rounds' ratios. Whole checks are timed by the wall clock.
"""

import argparse
import gc
import importlib.util
import io
import statistics
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import torch
from torch.autograd import Function, gradcheck

import pullback as pb
from pullback.battery.probe import Probe
from pullback.battery.value import ValueTest

SIZE = 1000
LIMIT_OF_AN_OP = 1e-3


class Swish(Function):
    """Elementwise: each output depends on one input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * (s + x * s * (1 - s))


class Softmax(Function):
    """Dense: each output depends on every input."""

    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y * (grad_output - (grad_output * y).sum(-1, keepdim=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--skip-slow", action="store_true", help="leave out gradcheck's slow mode")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first_pass(options.rounds, slow=not options.skip_slow)
    whole_checks()


def first_pass(rounds: int, *, slow: bool) -> None:
    """Print the time of the value test's first pass beside gradcheck's modes, for an elementwise and a dense op."""
    print(f"first pass of the value test, n = {SIZE}, float64, median of {rounds} rounds")
    print(f"{'op':10} {'pullback':>12} {'gradcheck fast':>16} {'gradcheck slow':>16} {'of fast':>9} {'slow is':>9}")
    for function in (Swish, Softmax):
        x = torch.randn(SIZE, dtype=torch.float64, requires_grad=True)
        evaluator = Probe(pb.case(function, x)).exact
        assert ValueTest(evaluator).run().first_pass, f"{function.__name__} was not cleared by the first pass"
        ways: dict[str, Callable[[], object]] = {
            "pullback": lambda evaluator=evaluator: ValueTest(evaluator).run(),
            "fast": lambda f=function, x=x: gradcheck(f.apply, x, fast_mode=True),
        }
        if slow:
            ways["slow"] = lambda f=function, x=x: gradcheck(f.apply, x)
        times = interleaved(ways, rounds)
        ours, fast = times["pullback"], times["fast"]
        line = f"{function.__name__:10} {ms(statistics.median(ours)):>12} {ms(statistics.median(fast)):>16}"
        line += f" {ms(statistics.median(times['slow'])) if slow else '-':>16} {ratio(ours, fast):>9.2f}"
        print(line + (f" {ratio(times['slow'], ours):>7.0f} ×" if slow else f" {'-':>9}"))


def whole_checks() -> None:
    """Print the time of a default check for each tutorial example that runs in under a millisecond, and the median."""
    cases = [case for case in tutorial_cases() if seconds_of(case) < LIMIT_OF_AN_OP]
    print(f"\ndefault check of {len(cases)} ops that run forward and backward in under {1e3 * LIMIT_OF_AN_OP:.0f} ms")
    took: dict[str, float] = {}
    for number, case in enumerate(cases):
        took[f"{case.target.__name__} {number}"] = timed(lambda case=case: pb.check(case.target, case.args, kwargs=case.kwargs))
    for name, seconds in sorted(took.items(), key=lambda item: item[1]):
        print(f"  {name:24} {seconds:6.2f} s")
    print(f"median {statistics.median(took.values()):.2f} s, longest {max(took.values()):.2f} s")


def tutorial_cases() -> list[pb.Case]:
    path = Path(__file__).resolve().parents[1] / "examples" / "tutorial" / "mended.py"
    spec = importlib.util.spec_from_file_location("mended", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.pullback_cases())


def seconds_of(case: pb.Case) -> float:
    """Return the time of one forward and backward, the least of five."""

    def once() -> None:
        outputs = case.target.apply(*case.args, **case.kwargs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        torch.autograd.backward(outputs, [torch.ones_like(y) for y in outputs])

    with redirect_stdout(io.StringIO()):
        return min(timed(once) for _ in range(5))


def interleaved(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the times of each way, one for each round, in an order that is reversed every round."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for name in list(ways)[:: 1 if number % 2 else -1]:
                times[name].append(timed(ways[name], clock=time.thread_time))
    finally:
        gc.enable()
    return times


def timed(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    call()
    return clock() - start


def ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


if __name__ == "__main__":
    main()
