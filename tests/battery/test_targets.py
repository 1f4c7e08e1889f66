"""What the command line names: files, folders, modules, packages, and names in them."""

from pathlib import Path

import pytest

from pullback.battery.targets import TargetError, parse_targets

OP = "class F(torch.autograd.Function): ..."


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "pkg/__init__.py": "",
        "pkg/ops.py": OP,
        "pkg/plain.py": "x = 1",
        "pkg/deep/__init__.py": OP,
        "pkg/deep/more.py": OP,
        "pkg/.hidden/ops.py": OP,
        "single.py": OP,
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return tmp_path


def shown(specs):
    return [(t.spec, t.module, t.names) for t in parse_targets(specs)]


def test_a_file(package):
    (target,) = parse_targets(["single.py"])
    assert target.path == str(package / "single.py")
    assert (target.module, target.names) == (None, ())


def test_names_of_one_file_are_joined(package):
    assert shown(["single.py::A", "pkg/ops.py", "single.py::B.C"]) == [("single.py", None, ("A", "B.C")), ("pkg/ops.py", None, ())]


@pytest.mark.parametrize("specs", [["single.py", "single.py::A"], ["single.py::A", "single.py"], ["single.py", "single.py"]])
def test_the_whole_file_holds_its_names(package, specs):
    assert shown(specs) == [("single.py", None, ())]


def test_a_folder_is_its_files_that_could_define_something(package):
    assert shown(["pkg"]) == [("pkg/deep/__init__.py", None, ()), ("pkg/deep/more.py", None, ()), ("pkg/ops.py", None, ())]


def test_a_module_is_found_without_being_imported(package):
    Path("pkg/__init__.py").write_text("raise SystemExit('imported')")
    assert shown(["pkg.ops::F"]) == [("pkg.ops", "pkg.ops", ("F",))]
    assert shown(["pkg.deep"]) == [("pkg.deep", "pkg.deep", ()), ("pkg.deep.more", "pkg.deep.more", ())]


def test_an_installed_module():
    (target,) = parse_targets(["json.decoder::JSONDecoder"])
    assert target.path.endswith("decoder.py")
    assert target.module == "json.decoder"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("singel.py", "no file 'singel.py'. Did you mean single.py?"),
        ("pkg/opps.py", "no file 'pkg/opps.py'. Did you mean pkg/ops.py?"),
        ("nowhere/at/all.py", "no file 'nowhere/at/all.py'."),
        ("no_such_module_xyz", "'no_such_module_xyz' is neither a file nor a module that can be found from here."),
        ("pkg.nothing", "neither a file nor a module"),
        ("", "a target is empty"),
        ("::F", "a target is empty"),
        ("a b", "neither a file nor a module"),
    ],
)
def test_what_does_not_exist_is_told_with_what_is_near(package, spec, words):
    with pytest.raises(TargetError) as caught:
        parse_targets([spec])
    assert words in str(caught.value)


def test_a_folder_without_custom_derivatives(package):
    Path("empty").mkdir()
    with pytest.raises(TargetError, match="no file below 'empty' mentions"):
        parse_targets(["empty"])
