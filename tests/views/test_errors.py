"""Errors about autograd say which Function, file and line they are about; everything else stays as it is."""

import gc
import importlib.util
import sys
import traceback
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import pullback as pb

SOURCE = Path(__file__).with_name("autograd_mistakes.py")


def load():
    spec = importlib.util.spec_from_file_location("autograd_mistakes", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


mistakes = load()
LINES = {
    marker: number
    for path in (SOURCE, Path(__file__))
    for number, text in enumerate(path.read_text().splitlines(), 1)
    for marker in [text.partition("# at ")[2]]
    if marker
}


def place(marker, path=SOURCE):
    return f"{path.name}:{LINES[marker]}"


def explained(run, kind):
    with pytest.raises(kind) as caught, pb.explain_errors():
        run()
    return caught.value


@pytest.mark.parametrize("mistake", mistakes.MISTAKES, ids=lambda mistake: mistake.run.__name__)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_mistake_is_explained(mistake):
    with pytest.raises(mistake.error) as plain:
        mistake.run()
    error = explained(mistake.run, mistake.error)
    headline, where, *details = str(error).splitlines()
    assert mistake.headline in headline
    assert place(mistake.at) in where.split("   ")[0]
    for word, marker in mistake.shown.items():
        assert any(line.startswith(f"  {word} ") and f"{place(marker)} " in line for line in details), (word, place(marker), details)
    assert mistake.fix in " ".join(line.strip() for line in details)
    assert any(line.startswith("  fix ") for line in details)
    assert max(map(len, str(error).splitlines())) < 200
    assert type(error) is mistake.error is type(plain.value)
    assert type(error.__cause__) is mistake.error
    assert str(error.__cause__) == str(plain.value)
    assert frames(error) == frames(plain.value)


def frames(error):
    """Return the files and lines of the traceback inside of the mistake."""
    found = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return found[next(i for i, (path, _) in enumerate(found) if path == str(SOURCE)) :]


def test_there_are_many_kinds():
    assert len(mistakes.MISTAKES) >= 60


def test_compiler_errors_keep_their_class_and_get_a_note_or_message():
    error = explained(mistakes.compile_breaks, torch._dynamo.exc.Unsupported)
    said = "\n".join([str(error), *getattr(error, "__notes__", ())])
    assert "torch.compile stops at Prints" in said
    assert place("prints") in said
    assert place("Prints.forward") in said


def test_a_compiled_op_without_fake_names_the_op():
    error = explained(mistakes.compiled_op_without_fake, Exception)
    said = "\n".join([str(error), *getattr(error, "__notes__", ())])
    assert "the op pullback_mistakes::bare is compiled or exported" in said
    assert place("bare") in said
    assert place("bare compiled") in said


def test_the_message_reads_so():
    error = explained(mistakes.second_backward_of_a_function, RuntimeError)
    path = str(error).splitlines()[1].split(":")[0].strip()
    assert str(error).splitlines() == [
        "Trying to backward through the graph a second time: what Square saved was freed by the first backward",
        f"  {path}:{LINES['again']}   y.backward()  # at again",
        f"  freed by  {path}:{LINES['once']}   y.backward()  # at once",
        f"  reads it  {path}:{LINES['Square.backward']}   def backward(ctx, dy):  # at Square.backward",
        "  fix       call backward once, on the sum of the losses; loss.backward(retain_graph=True) in the first keeps",
        "            the graph",
    ]


class WithCode(RuntimeError):
    def __init__(self, text, code):
        super().__init__(text, code)
        self.code = code

    def __str__(self):
        return self.args[0]


class Stubborn(RuntimeError):
    def __init__(self, *, code):
        super().__init__()
        self.code = code

    def __str__(self):
        return "grad can be implicitly created only for scalar outputs"


@pytest.mark.parametrize("kind", [WithCode, Stubborn])
def test_subclasses_with_constructors_of_their_own(kind):
    text = "grad can be implicitly created only for scalar outputs"

    def run():
        raise WithCode(text, 7) if kind is WithCode else Stubborn(code=7)

    error = explained(run, kind)
    assert (type(error), error.code) == (kind, 7)
    if kind is WithCode:
        assert str(error).startswith("backward of ")
        assert (type(error.__cause__), str(error.__cause__), error.__cause__.code) == (kind, text, 7)
    else:
        assert error.__cause__ is None
        assert error.__notes__[0].startswith("backward of ")


def test_a_cause_of_its_own_stays_in_the_chain():
    def run():
        try:
            raise KeyError("first")
        except KeyError as first:
            raise RuntimeError("grad can be implicitly created only for scalar outputs") from first

    error = explained(run, RuntimeError)
    assert isinstance(error.__cause__.__cause__, KeyError)


def test_errors_handled_inside_are_untouched():
    with pb.explain_errors(), pytest.raises(RuntimeError, match=r"^Trying to backward through the graph a second time \(or directly") as caught:
        mistakes.second_backward()
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("error", [ValueError("no mistake"), RuntimeError("CUDA out of memory"), KeyError("x"), TypeError("'NoneType' is not it")])
def test_other_errors_are_untouched(error):
    def run():
        raise error

    args = error.args
    assert explained(run, type(error)) is error
    assert (error.args, error.__cause__, getattr(error, "__notes__", None)) == (args, None, None)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names == ["explained", "run"]


def test_exits_pass():
    with pytest.raises(SystemExit) as caught, pb.explain_errors():
        raise SystemExit(3)
    assert caught.value.code == 3


def test_nested_explains_once():
    def run():
        with pb.explain_errors():
            mistakes.second_backward()

    error = explained(run, RuntimeError)
    assert error.__cause__.__cause__ is None
    assert str(error).count("second time") == 1


def test_decorator():
    @pb.explain_errors()
    def run():
        mistakes.backward_of_a_vector()

    with pytest.raises(RuntimeError, match=r"backward of y, which is float32 \[3\]"):
        run()


def test_everything_is_restored():
    names = ("detach", "add_", "__setitem__", "__iadd__", "data", "to", "numpy", "relu_")
    before = [(name in vars(torch.Tensor), getattr(torch.Tensor, name)) for name in names]
    functions = torch.relu_, torch.no_grad.__enter__, torch.autograd._engine_run_backward
    with pytest.raises(RuntimeError), pb.explain_errors(), pb.explain_errors():  # noqa: PT012
        assert torch.Tensor.add_ is not before[1][1]
        raise RuntimeError
    assert [(name in vars(torch.Tensor), getattr(torch.Tensor, name)) for name in names] == before
    assert (torch.relu_, torch.no_grad.__enter__, torch.autograd._engine_run_backward) == functions


def train(seed=0, *, steps=4):
    """A right program with much that is noted: writes in place, detach, no_grad, data, casts, two optimizers, accumulation over two batches."""
    torch.manual_seed(seed)
    body, head = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5)), nn.Linear(8, 1)
    first, second = torch.optim.Adam(body.parameters(), 0.01), torch.optim.SGD(head.parameters(), 0.1, momentum=0.9)
    mean, losses = torch.zeros(1), []
    for _ in range(steps):
        first.zero_grad()
        second.zero_grad(set_to_none=False)
        for _ in range(2):
            x = torch.randn(16, 4)
            h = body(x)
            h[:, 0] *= 0.5
            loss = head(h).square().mean()
            loss.backward()
            with torch.no_grad():
                mean.mul_(0.9).add_(0.1 * loss)
            losses.append((loss.detach().clone(), int(loss.item() > 0), h.data.argmax().tolist()))
        nn.utils.clip_grad_norm_([*body.parameters(), *head.parameters()], 1.0)
        first.step()
        second.step()
    return losses, [p.detach().clone() for p in (*body.parameters(), *head.parameters())]


def test_right_programs_are_silent_and_the_same(capsys):
    expected = train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pb.explain_errors():
            seen = train()
    assert [loss[1:] for loss in expected[0]] == [loss[1:] for loss in seen[0]]
    assert all(torch.equal(a, b) for a, b in zip(expected[1], seen[1], strict=True))
    assert capsys.readouterr() == ("", "")


def test_adversarial_training_is_silent():
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    makers, judges = torch.optim.SGD(maker.parameters(), 0.1), torch.optim.SGD(judge.parameters(), 0.1)
    with pb.explain_errors():
        for set_to_none in (True, False, True, False):
            judges.zero_grad(set_to_none=set_to_none)
            judge(maker(torch.randn(4, 2))).mean().backward()
            judges.step()
            makers.zero_grad(set_to_none=set_to_none)
            judge(maker(torch.randn(4, 2))).mean().neg().backward()
            makers.step()


def test_lbfgs_is_silent():
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with pb.explain_errors():
        for _ in range(3):
            optimizer.step(closure)


def test_accumulated_gradients_are_a_warning_at_the_step():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.warns(UserWarning, match="gradients accumulate across steps") as caught, pb.explain_errors():  # noqa: PT031
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()  # at accumulated
            optimizer.step()  # at accumulating step
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, LINES["accumulating step"])
    assert place("accumulated", Path(__file__)) in str(warning.message)
    assert "optimizer.zero_grad()" in str(warning.message)


def test_accumulated_gradients_by_hand_are_a_warning():
    w = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="gradients accumulate across steps") as caught, pb.explain_errors():  # noqa: PT031
        for _ in range(3):
            (w * w).sum().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad  # at by hand
    (warning,) = caught
    assert warning.lineno == LINES["by hand"]


def test_updates_by_hand_that_clear_are_silent():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with pb.explain_errors():
        for _ in range(3):
            (a * b).sum().backward()
            with torch.no_grad():
                a -= 0.1 * a.grad
                b.sub_(0.1 * b.grad)
            a.grad = None
            b.grad.zero_()


def test_a_step_without_any_gradient_is_a_warning():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    other = nn.Linear(2, 1)
    with pytest.warns(UserWarning, match="moves nothing") as caught, pb.explain_errors():  # noqa: PT031
        other(torch.ones(1, 2)).sum().backward()  # at of another
        optimizer.step()  # at nothing moved
    (warning,) = caught
    assert warning.lineno == LINES["nothing moved"]
    assert place("of another", Path(__file__)) in str(warning.message)


def test_a_step_before_any_backward_is_silent():
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), 0.1)
    with pb.explain_errors():
        optimizer.step()


def test_a_warning_that_is_an_error_is_raised_at_the_step():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(1, 2)).sum().backward()
    with pb.explain_errors():
        optimizer.step()
        model(torch.ones(1, 2)).sum().backward()
        with pytest.raises(UserWarning, match="accumulate"):
            optimizer.step()


def test_nothing_is_kept_alive():
    with pb.explain_errors():
        x = torch.ones(1000, requires_grad=True)
        y = x.clone().mul_(2).detach()
        y.add_(1)
        (2 * x).sum().backward()
        alive = [weakref.ref(x), weakref.ref(y)]
        del x, y
        gc.collect()
        assert [ref() for ref in alive] == [None, None]


def test_a_compiled_program_runs_as_before():
    def f(x):
        y = x.sin()
        y.add_(1)
        y[0] = 2
        return y.detach().clone().mul_(2) + y.data.to(torch.float64).long().float() + y

    x = torch.linspace(0.1, 1, 4, requires_grad=True)
    expected = f(x)
    with pb.explain_errors():
        found = torch.compile(f, backend="eager", fullgraph=True)(x)
        found.sum().backward()
    assert torch.equal(expected, found)


def test_transforms_run_as_before():
    def f(x):
        y = x.clone()
        y.mul_(2)
        return (y.detach() * y).sum()

    x = torch.ones(3)
    with pb.explain_errors():
        assert torch.equal(torch.func.grad(f)(x), torch.full((3,), 4.0))
        assert torch.equal(torch.vmap(torch.func.grad(f))(torch.ones(2, 3)), torch.full((2, 3), 4.0))


def test_threads_may_enter_and_leave_in_any_order():
    first, second = pb.explain_errors(), pb.explain_errors()
    before = torch.Tensor.add_
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.Tensor.add_ is not before
    second.__exit__(None, None, None)
    assert torch.Tensor.add_ is before


def test_of_two_functions_of_one_name_neither_is_blamed():
    def made(count):
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            def backward(ctx, dy):
                return (2 * dy,) * count

        return Twice

    right, wrong = made(1), made(3)
    text = str(explained(lambda: right.apply(wrong.apply(torch.ones(2, requires_grad=True))).sum().backward(), RuntimeError))
    assert "Twice.backward returned an incorrect number of gradients: 3" in text
    assert "def backward" not in text
