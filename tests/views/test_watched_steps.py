"""What a watch measures in every step, and how it shows it."""

import json

import pytest
import torch
from going_wrong import line_of, net, program
from torch import nn

import pullback as pb


def test_gradient_norms_are_those_of_the_parameters():
    model = net()
    with pb.watch(model) as watch:
        torch.manual_seed(0)
        y = model(torch.randn(4, 8))
        y.square().sum().backward()
    (step,) = watch.steps
    expected = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert step.gradient == pytest.approx(float(expected), rel=1e-5)
    assert step.output == pytest.approx(float(y.detach().norm()), rel=1e-5)


def test_gradients_that_have_a_graph_are_measured():
    model = nn.Linear(4, 4)
    with pb.watch(model) as watch, pytest.warns(UserWarning, match="create_graph"):
        model(torch.ones(2, 4)).square().sum().backward(create_graph=True)
    assert watch.steps[0].gradient is not None
    model.zero_grad()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    model = nn.Linear(4, 4).to(dtype)
    with pb.watch(model) as watch:
        model(torch.ones(2, 4, dtype=dtype)).sum().backward()
    assert watch.steps[0].gradient == pytest.approx(float(torch.cat([p.grad.flatten().double() for p in model.parameters()]).norm()), rel=1e-2)
    assert watch.faults == []


def test_mixed_dtypes_large_and_sparse_gradients():
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(300, 300), "b": nn.Linear(4, 4).double(), "c": nn.Embedding(9, 3, sparse=True)})

    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return {
                "a": self.parts["a"](x.expand(2, 300)).sum(),
                "rest": [self.parts["b"](x.expand(2, 4).double()).sum(), self.parts["c"](torch.arange(3)).sum(), torch.arange(3), "text"],
            }

    whole = All()
    with pb.watch(whole, every=1) as watch:
        found = whole(torch.ones(1))
        (found["a"] + found["rest"][0] + found["rest"][1]).backward()
    dense = [p.grad.double().flatten() for name, p in whole.named_parameters() if ".c." not in name]
    assert watch.steps[0].gradient == pytest.approx(float(torch.cat(dense).norm()), rel=1e-5)
    assert watch.faults == []


def test_two_backwards_and_several_forwards_are_one_step_each():
    cell = nn.RNNCell(4, 4)
    with pb.watch(cell) as watch:
        for _ in range(2):
            h = torch.zeros(2, 4)
            for _ in range(5):
                h = cell(torch.ones(2, 4), h)
            h.sum().backward()
        y = cell(torch.ones(2, 4))
        y.sum().backward(retain_graph=True)
        y.sum().backward()
    assert [step.step for step in watch.steps] == [1, 2, 3, 3]


def test_watching_what_is_compiled_from_outside_says_that_it_saw_nothing():
    model = nn.Sequential(nn.Linear(4, 4))
    with pb.watch(model[0]) as watch:
        torch.compile(model, backend="eager", fullgraph=True)(torch.ones(2, 4)).sum().backward()
    assert "watch what torch.compile returned" in str(watch)


def test_text_shows_steps_the_last_full_look_and_marks():
    model = net()
    model.register_parameter("unused", nn.Parameter(torch.ones(2)))
    with pb.watch(model, every=3) as watch:
        torch.manual_seed(0)
        for _ in range(12):
            model.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
    lines = str(watch).splitlines()
    assert lines[0] == "watch of Net: 12 steps"
    assert lines[1].split() == ["step", "output", "gradient"]
    assert [line.split()[0] for line in lines[2:11]] == ["1", "2", "3", "4", "…", "9", "10", "11", "12"]
    assert "step 10 in full, root mean squares" in lines
    assert any(line.startswith("  unused") and line.endswith("! no gradient") for line in lines)


def test_json_holds_everything_and_is_plain(tmp_path):
    model = net()
    with pb.watch(model, every=2, on_fault=lambda fault: None) as watch:
        program(model, way="log", bad=2)
    watch.save(tmp_path / "watch.json")
    data = json.loads((tmp_path / "watch.json").read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert (data["kind"], data["schema"], data["modules"]) == ("watch", 1, ["Net"])
    assert [step["gradient"] for step in data["steps"]][2] == "nan"
    assert data["faults"][0]["location"]["line"] == line_of("log")
    assert [look["step"] for look in data["looks"]] == [1, 3, 5]
    with pytest.raises(ValueError, match=r"Watch\.save writes \.json, \.txt"):
        watch.save("watch.svg")


def test_wrong_arguments_are_explained():
    with pytest.raises(TypeError, match=r"watch takes torch\.nn\.Module, got function"):
        pb.watch(lambda x: x)
    with pytest.raises(ValueError, match="needs a module"):
        pb.watch()
    with pytest.raises(ValueError, match="got -1"):
        pb.watch(nn.Linear(1, 1), every=-1)


def test_norms_of_small_steps_are_measured_in_order_whatever_the_batch():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    with pb.watch(model, every=0) as watched:
        expected = []
        for i in range(75):
            model.zero_grad()
            y = model(torch.randn(2 if i % 10 == 9 else 4, 3))
            y.square().sum().backward()
            expected.append((i + 1, torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item(), y.detach().norm().item()))
            if i == 20:
                assert len(watched.steps) == 21
    assert [(step.step, pytest.approx(step.gradient), pytest.approx(step.output)) for step in watched.steps] == expected
    assert not watched.faults
