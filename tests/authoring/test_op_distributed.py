"""Gradients on several processes equal those of one: DDP, FSDP2 and DTensor, composite and opaque."""

import socket

import pytest
import torch.distributed
import torch.multiprocessing
from authoring_workers import CHECKS, work

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_equal_one_process(size):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=work, args=(rank, size, port, queue)) for rank in range(size)]
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
            assert found[rank].get(name) == "equal", f"rank {rank}, {name}:\n{found[rank].get(name)}"
