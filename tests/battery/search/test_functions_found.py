"""Over a hundred Functions in the styles of public code: how many get meaningful inputs."""

from __future__ import annotations

import pytest
import torch

from pullback.battery.search import find_inputs


def test_the_set_is_large_and_varied(functions):
    assert len(functions) >= 80
    assert len({function.__module__ for function in functions}) == 12


def test_meaningful_inputs(functions, results, shortcoming):
    failures = [text for function in functions if (text := shortcoming(function, results[function]))]
    assert len(failures) <= 0.05 * len(functions), "\n".join(failures)


def test_meaningful_inputs_when_no_message_is_understood(functions, shortcoming):
    failures = [text for function in functions if (text := shortcoming(function, find_inputs(function, seconds=1e9, use_messages=False)))]
    assert len(failures) <= 0.15 * len(functions), "\n".join(failures)


def test_few_evaluations(results):
    used = sorted(result.evaluations for result in results.values())
    assert used[len(used) // 2] <= 30
    assert used[int(0.9 * len(used))] <= 200


def test_the_second_sample_differs_in_structure(results):
    found = [result for result in results.values() if result.status == "found"]

    def shapes(case):
        return [tuple(a.shape) for a in case.args if isinstance(a, torch.Tensor)]

    differ = [r for r in found if len(r.cases) > 1 and shapes(r.cases[0]) != shapes(r.cases[1])]
    assert len(differ) >= 0.9 * len(found)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_printed_case_runs_forward_and_backward(functions, results):
    for function in functions:
        if function.__module__.endswith("collectives"):
            continue
        result = results[function]
        assert len(result.calls) == len(result.cases)
        for case in result.cases:
            args = [a.clone() if isinstance(a, torch.Tensor) and a.requires_grad and "non-leaf" in result.flags else a for a in case.args]
            outputs = function.apply(*args)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            live = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
            assert live, result.calls[case.index]
            torch.autograd.backward(live, [torch.ones_like(o) for o in live])


def test_neutral_values_and_squares_are_avoided(results):
    for function, result in results.items():
        for value in result.cases[0].args if result.cases else ():
            if isinstance(value, float):
                assert value not in (0.0, 1.0, -1.0) or value in _defaults(function), result.call


def _defaults(function):
    import inspect

    return [p.default for p in inspect.signature(function.forward).parameters.values()]


def test_flags_go_both_ways(functions, results):
    by_name = {function.__name__: results[function] for function in functions}
    seeded = by_name["SeededDropout"]
    assert {case.args[3] for case in seeded.cases} == {True, False}
    reductions = {case.args[2] for case in by_name["MSE"].cases}
    assert {"mean", "sum"} <= reductions


def test_optional_tensors_are_given_and_left_out(functions, results):
    by_name = {function.__name__: results[function] for function in functions}
    linear = by_name["LinearFunction"]
    assert isinstance(linear.cases[0].args[2], torch.Tensor)
    assert any(case.args[2] is None for case in linear.cases)


def test_inputs_that_never_get_a_gradient(functions, results):
    by_name = {function.__name__: results[function] for function in functions}
    result = by_name["MSE"]
    assert not result.cases[0].args[1].requires_grad
    assert result.severed is not None
    assert result.severed.args[1].requires_grad
    assert by_name["MemoryEfficientSwish"].severed is None


def test_invented_callables_are_named(functions, results):
    by_name = {function.__name__: results[function] for function in functions}
    assert by_name["ElementwiseWith"].cases[0].invented == ("fn",)
    assert by_name["Checkpoint"].cases[0].invented == ("run_function",)
    assert by_name["ConfiguredScale"].cases[0].invented == ("cfg",)
    assert by_name["MemoryEfficientSwish"].cases[0].invented == ()


def test_collectives_get_a_group_of_one(functions, results):
    collectives = [results[function] for function in functions if function.__module__.endswith("collectives")]
    assert all(result.status == "found" for result in collectives)


def test_state_is_restored(functions):
    class Meddling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            torch.set_default_dtype(torch.float32 if torch.get_default_dtype() == torch.float64 else torch.float64)
            torch.manual_seed(3)
            torch.use_deterministic_algorithms(True)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    torch.manual_seed(11)
    before = torch.get_rng_state()
    assert find_inputs(Meddling).status == "found"
    assert torch.get_default_dtype() == torch.float32
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError])
def test_any_exception_of_the_code_is_contained(error):
    class Leaves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raise error("out")

        @staticmethod
        def backward(ctx, g):
            return g

    result = find_inputs(Leaves, evaluations=20)
    assert result.status == "skipped"
    assert error.__name__ in result.last_error


def test_memory_never_written_is_noticed():
    class Unwritten(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.empty_like(x)
            out[:1] = x[:1]
            return out

        @staticmethod
        def backward(ctx, g):
            return g

    result = find_inputs(Unwritten, evaluations=60)
    assert result.status != "found" or any("two runs" in flag for flag in result.flags)
