"""Every step of apply and backward is told, and a gradient's end is marked."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import pullback as pb

TUTORIAL = Path(__file__).resolve().parents[2] / "examples" / "tutorial"
MENDED = TUTORIAL / "mended.py"


def tutorial_cases(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_for_traces", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return list(module.pullback_cases())


CASES = tutorial_cases(MENDED)


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return dy * ctx.factor, None


class ByContext(Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


def returning(gradient_of):
    class Returns(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, dy):
            return gradient_of(dy)

    return Returns


def whats(traced, phase):
    return [step.what for step in traced.steps if step.phase == phase]


def marks(traced):
    return [(step.phase, step.what, step.name, step.mark) for step in traced.marked]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{i}-{case.target.__name__}") for i, case in enumerate(CASES)])
def test_tutorial_examples_are_traced_from_argument_to_gradient(case, capsys):
    traced = pb.trace(case.target, *case.args)
    assert traced.error == ""
    apply, backward = whats(traced, "apply"), whats(traced, "backward")
    assert apply.count("argument") >= len(case.args)  # setup_context is given defaults too
    assert {"context", "forward", "result", "attaches"} <= set(apply)
    assert backward[0] == "receives"
    assert "backward" in backward
    needed = sum(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in case.args)
    assert backward.count("returns") == needed
    assert traced.marked == ()
    assert len(traced.gradients) == needed
    assert all(stats is not None for _, stats in traced.gradients)
    places = {step.what: step.location for step in traced.steps if step.location}
    assert places["forward"].path.endswith("mended.py")
    assert MENDED.read_text().splitlines()[places["backward"].line - 1].lstrip().startswith("def backward")


@pytest.mark.parametrize("name", ["as_published", "authored"])
def test_an_example_is_one_call_however_it_is_written(name, capsys):
    for case in tutorial_cases(TUTORIAL / f"{name}.py"):
        traced = pb.trace(case.target, *case.args, **case.kwargs)
        assert traced.error == ""
        assert {step.function for step in traced.steps} == {case.target.__name__}
        assert [whats(traced, phase).count(phase.replace("apply", "forward")) for phase in ("apply", "backward")] == [1, 1]
        assert {step.location.path.rpartition("/")[2] for step in traced.steps if step.location} == {f"{name}.py"}
        unheard_of = name == "as_published" and case.target.__name__ == "Swish" and isinstance(case.args[-1], torch.Tensor) and len(case.args) > 1
        assert [(step.name, step.mark) for step in traced.marked] == ([("grad_beta", "None")] if unheard_of else [])


def test_methods_that_call_those_of_a_base_class_are_one_call():
    class Louder(Scale):
        @staticmethod
        def forward(ctx, x, factor):
            return Scale.forward(ctx, x, factor) * 1

        @staticmethod
        def backward(ctx, dy):
            return Scale.backward(ctx, dy)

    traced = pb.trace(Louder, torch.ones(3), 2.0)
    assert {step.function for step in traced.steps} == {"Louder"}
    assert [step.what for step in traced.steps].count("returns") == 1


def test_steps_say_what_happened():
    traced = pb.trace(Scale, torch.tensor([3.0, 4.0], requires_grad=True), 2.0)
    said = {(step.what, step.name): (step.text, step.stats) for step in traced.steps}
    assert said["argument", "factor"][0] == "2.0"
    assert said["argument", "x"][1].norm == 5.0
    assert said["context", ""][0] == "needs_input_grad (True, False)"
    assert said["saves", "x"][0] == "float32 [2], 8 B, save_for_backward"
    assert said["saves", "ctx.factor"][0] == "2.0"
    assert said["attaches", ""][0] == "x ← leaf"
    assert said["returns", "grad_x"][1].norm == pytest.approx(8**0.5)


def test_setup_context_is_traced():
    traced = pb.trace(ByContext, torch.zeros(3))
    assert ("saves", "output") in [(step.what, step.name) for step in traced.steps]
    assert dict(traced.gradients)["x"].norm == pytest.approx(3**0.5)


@pytest.mark.parametrize(
    ("gradient_of", "mark"),
    [
        (lambda dy: dy * 0, "zero"),
        (lambda dy: dy / 0, "Inf"),
        (lambda dy: dy * float("nan"), "NaN"),
        (lambda dy: None, "None"),
        (lambda dy: dy, ""),
    ],
)
def test_where_a_gradient_ends_is_marked(gradient_of, mark):
    traced = pb.trace(returning(gradient_of), torch.ones(3))
    assert [step.mark for step in traced.marked] == ([mark] if mark else [])


def test_only_the_first_step_with_it_is_marked():
    spoils, passes = returning(lambda dy: dy * float("nan")), returning(lambda dy: dy)
    traced = pb.trace(lambda x: spoils.apply(passes.apply(x)), torch.ones(3))
    assert [step.call for step in traced.marked] == [2]


def test_a_cut_behind_an_op_is_marked():
    traced = pb.trace(lambda x: Scale.apply(x, 2.0).detach() + x, torch.ones(3))
    assert marks(traced) == [("backward", "never runs", "", "cut")]


def test_a_cut_around_an_op_is_marked():
    def quiet(x):
        with torch.no_grad():
            return Scale.apply(x, 2.0)

    traced = pb.trace(quiet, torch.ones(3))
    assert [step.mark for step in traced.marked] == ["cut"]
    assert traced.gradients == (("x", None),)
    assert "None: no way leads" in str(traced)


@pytest.mark.parametrize(("mode", "why"), [(torch.no_grad, "under torch.no_grad()"), (torch.inference_mode, "in torch.inference_mode()")])
def test_a_mode_that_records_nothing_is_named(mode, why):
    x = torch.ones(3, requires_grad=True)
    with mode():
        steps = pb.trace(Scale.apply, x, 2.0).steps
    assert [step.text for step in steps if step.what == "attaches"] == [f"no gradient is recorded {why}"]


def test_an_exception_is_the_last_step():
    def fails(dy):
        raise RuntimeError("no \x1b[31mkernel")

    traced = pb.trace(returning(fails), torch.ones(3))
    assert traced.error == "RuntimeError: no \\x1b[31mkernel"
    assert traced.steps[-1].what == "raises"
    assert "\x1b" not in str(traced)


def test_classes_are_restored():
    before = (Scale.__dict__["forward"], Scale.__dict__["backward"])
    pb.trace(Scale, torch.ones(3), 2.0)
    assert (Scale.__dict__["forward"], Scale.__dict__["backward"]) == before


def test_nothing_of_the_caller_changes():
    x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)
    pb.trace(Scale, x, 2.0)
    pb.trace(Scale, w, 2.0)
    assert not x.requires_grad
    assert w.grad is None


def test_modules_have_the_gradients_of_their_parameters():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x):
            return Scale.apply(self.layer(x), 2.0)

    traced = pb.trace(Net(), torch.ones(4, 3))
    assert [name for name, _ in traced.gradients] == ["x", "layer.weight", "layer.bias"]


def test_functions_made_by_the_call_are_traced():
    traced = pb.trace(lambda x: returning(lambda dy: dy * 0).apply(x), torch.ones(3))
    assert [step.mark for step in traced.marked] == ["zero"]


def test_strides_are_told():
    traced = pb.trace(lambda x: Scale.apply(x, 2.0).t().contiguous(), torch.ones(2, 3))
    received = next(step for step in traced.steps if step.what == "receives")
    assert received.stats.strides == "(1, 2)"
    assert "strides (1, 2)" in str(traced)


def test_json_and_text_show_every_step(tmp_path):
    traced = pb.trace(Scale, torch.ones(3), 2.0)
    data = json.loads(traced.to_json())
    assert [step["what"] for step in data["steps"]] == [step.what for step in traced.steps]
    text = traced.to_text()
    assert all(f" {step.number}  {step.what}" in text for step in traced.steps)
    traced.save(tmp_path / "trace.txt")
    with pytest.raises(ValueError, match=r"\.svg, \.html, \.json, \.txt"):
        traced.save(tmp_path / "trace.pdf")


def test_what_cannot_be_called_is_explained():
    with pytest.raises(TypeError, match="pass an autograd"):
        pb.trace(3)


def test_a_gradient_lost_in_an_operator_is_marked_where_it_arrives():
    first, second = returning(lambda dy: dy), returning(lambda dy: dy)
    traced = pb.trace(lambda x: second.apply(first.apply(x) * 0), torch.ones(3))
    assert marks(traced) == [("backward", "receives", "grad_output", "zero")]
    assert "becomes zero in torch's own operations before it arrives" in str(traced)


def test_a_gradient_lost_before_the_first_function_is_marked_at_the_leaf():
    same = returning(lambda dy: dy)
    traced = pb.trace(lambda x: same.apply(torch.where(x > 0, (x - x).sqrt(), x)), torch.tensor([1.0, -1.0]))
    assert not traced.marked
    assert str(traced).splitlines()[-1] == "!  grad_x  float32 [2], 2 of 2 NaN, becomes NaN in torch's own operations"
    assert json.loads(traced.to_json())["gradients"][0]["mark"] == "NaN"


def test_a_gradient_that_the_function_withholds_is_not_called_cut():
    traced = pb.trace(returning(lambda dy: None), torch.ones(3))
    assert marks(traced) == [("backward", "returns", "grad_x", "None")]
    assert "None: Returns.backward returns none, step" in str(traced)


def test_gradients_that_autograd_refuses_are_a_step():
    traced = pb.trace(returning(lambda dy: (dy, dy)), torch.ones(3))
    assert "incorrect number of gradients" in traced.error
    assert (traced.steps[-1].what, traced.steps[-1].function) == ("raises", "Returns")


def test_torch_alone_is_said_to_apply_no_function():
    assert "applies no custom Function" in str(pb.trace(torch.sin, torch.ones(3)))


def test_an_exception_is_told_once():
    def fails(dy):
        raise RuntimeError("no kernel")

    assert str(pb.trace(returning(fails), torch.ones(3))).count("no kernel") == 1
    outside = pb.trace(lambda x: x.view(7), torch.ones(3))
    assert outside.error.startswith("RuntimeError")
    assert f"raised {outside.error}" in str(outside)
    assert "applies no custom Function" in outside.to_svg()


def test_zeros_for_an_unused_output_hide_no_loss():
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, dy, dz):
            return dy + 2 * dz

    same = returning(lambda dy: dy)
    traced = pb.trace(lambda x: Two.apply(same.apply(x) * 0)[0], torch.ones(3))
    assert [step.stats.zeros for step in traced.steps if step.what == "receives"] == [0, 3, 3]
    assert marks(traced) == [("backward", "receives", "grad_output", "zero")]


def test_of_many_calls_the_first_the_last_and_the_marked_are_shown():
    same, lost = returning(lambda dy: dy), returning(torch.zeros_like)

    def chain(x):
        for i in range(100):
            x = (lost if i == 49 else same).apply(x)
        return x

    traced = pb.trace(chain, torch.ones(3))
    text = str(traced)
    assert text.count("Returns.apply") == text.count("Returns.backward") - 1 == 24
    assert "… 76 calls without a mark left out" in text
    assert "becomes zero here" in text
    assert "… 38 calls without a mark left out" in traced.to_svg()
    assert len(json.loads(traced.to_json())["steps"]) == len(traced.steps) > 700


class NumberFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx, factor, x):
        ctx.factor = factor
        return factor * x

    @staticmethod
    def backward(ctx, dy):
        return None, ctx.factor * dy


def test_edges_are_those_of_tensors():
    traced = pb.trace(NumberFirst, 2.0, torch.ones(3, requires_grad=True))
    assert [step.text for step in traced.steps if step.what == "attaches"] == ["x ← leaf"]
