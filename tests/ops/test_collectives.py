"""Collectives: in a world of one against their references, and in several processes against the same computation in one."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import pullback as pb

pytestmark = [
    pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="torch without torch.distributed and gloo"),
]
NAMES = ["all_reduce", "all_gather", "reduce_scatter", "copy_to_group", "reduce_from_group"]
FOLDER = Path(pb.__file__).parent / "ops" / "collectives"


@pytest.fixture
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name", NAMES)
def test_against_reference(name, prove, world_of_one):
    edges = [pb.sample(torch.empty(0, 3).double()), pb.sample(torch.ones(1).double())]
    prove(getattr(pb.ops, name), edges=edges, kept=0)


@pytest.mark.parametrize("name", NAMES)
def test_check(name, passes_check, world_of_one):
    passes_check(getattr(pb.ops, name), select=["PB5", "PB6"])


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes(size, tmp_path):
    from collective_workers import CHECKS, work

    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=work, args=(rank, size, str(tmp_path), queue)) for rank in range(size)]
    for process in processes:
        process.start()
    try:
        found = dict(queue.get(timeout=240) for _ in processes)
    finally:
        for process in processes:
            process.join(20)
            if process.is_alive():
                process.kill()
    for rank in range(size):
        for name in CHECKS:
            assert found[rank].get(name) == "right", f"rank {rank}, {name}:\n{found[rank].get(name)}"


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_check_in_several_processes(size):
    command = [sys.executable, "-m", "pullback", "check", *[str(FOLDER / f"{name}.py") for name in NAMES], "--thorough", "--distributed", str(size)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "5 of 5 checked" in run.stdout, run.stdout


@pytest.mark.parametrize("name", NAMES)
def test_without_a_group(name):
    with pytest.raises(RuntimeError, match=f"{name}: there is no process group. Call torch.distributed.init_process_group first"):
        getattr(pb.ops, name)(torch.ones(2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.ops.all_reduce(1.0), TypeError, "all_reduce: x must be a tensor, got float"),
        (lambda: pb.ops.all_reduce(torch.ones(2), "max"), ValueError, "all_reduce: reduce must be one of 'sum', 'mean', got 'max'"),
        (
            lambda: pb.ops.all_reduce(torch.ones(2).long(), "mean"),
            ValueError,
            r"all_reduce: the mean needs a floating or complex tensor, got .*int64",
        ),
        (lambda: pb.ops.all_gather(torch.ones(2), 1), IndexError, r"all_gather: dim must be a dimension of a tensor of shape \[2\], got 1"),
        (lambda: pb.ops.copy_to_group(torch.ones(2), "world"), TypeError, "copy_to_group: group must be a process group or None, got str"),
    ],
)
def test_refuses(call, error, message, world_of_one):
    with pytest.raises(error, match=message):
        call()
