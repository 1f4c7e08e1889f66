"""Random words: the same whatever computes them, and good enough to be called random."""

import math
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.ops import streams

SIZES = [0, 1, 7, 511, 512, 513, 1023, 1024, 1500, 65536, 131071, 131072, 131073, 300001]


def mask(seed, n, p=0.3):
    return streams.kept(torch.tensor(seed), p, torch.empty(n))


@pytest.mark.parametrize("n", SIZES)
def test_words_block_by_block_and_all_at_once_are_the_same(n):
    seed = torch.tensor(-987654321)
    parts = [word.clone() for _, word in streams.blocks(int(seed), n)]
    assert torch.equal(torch.cat([torch.empty(0, dtype=torch.int32), *parts]), streams.words(seed, torch.empty(n)))


@pytest.mark.parametrize("n", SIZES)
def test_normal_numbers_block_by_block_and_all_at_once_are_the_same(n):
    seed, like = torch.tensor(2**62 + 3), torch.empty(n)
    assert torch.allclose(streams.normal(seed, like), streams.normal_of_words(seed, like), rtol=0, atol=3e-6)


def test_words_are_what_the_page_says():
    first, second = streams.keys_of(42, 1)

    def shift(h, by):
        return ((h - 2**32 if h >> 31 else h) >> by) & 0xFFFFFFFF

    def word(i):
        h = (i * 0x9E3779B1 + first) & 0xFFFFFFFF
        h = ((h ^ shift(h, 16)) * 0x21F0AAAD & 0xFFFFFFFF) ^ (second & 0xFFFFFFFF)
        h = (h ^ shift(h, 15)) * 0xD35A2D97 & 0xFFFFFFFF
        return h - 2**32 if h >> 31 else h

    assert [word(i) for i in range(50)] == streams.words(torch.tensor(42), torch.empty(131072 + 50))[131072:].tolist()


def within(count, n, p, sigmas=5.0):
    return abs(count - n * p) <= sigmas * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_rate(p):
    n = 400_000
    for seed in range(5):
        assert within(int(mask(seed, n, p).sum()), n, 1 - p)


def test_rate_in_rows_columns_and_blocks_spreads_as_chance_would():
    m = streams.kept(torch.tensor(9), 0.5, torch.empty(1024, 1024)).double()
    for sums in (m.sum(0), m.sum(1), m.reshape(-1, 64).sum(1), m.reshape(-1, 4096).sum(1)):
        n = m.numel() // len(sums)
        chi = float(((sums - n / 2) ** 2).sum() / (n / 4))
        assert abs(chi - len(sums)) < 5 * math.sqrt(2 * len(sums)), f"chi² {chi} for {len(sums)} sums of {n}"


def correlation(a, b):
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    return float((a * b).mean() / (a.std() * b.std()))


@pytest.mark.parametrize("lag", [1, 2, 3, 7, 16, 64, 100, 768, 1000, 1024, 4096, 65536, 131072])
def test_neighbours_and_rows_are_not_correlated(lag):
    m = mask(17, 700_000)
    assert abs(correlation(m[:-lag], m[lag:])) < 5 / math.sqrt(len(m) - lag)


def test_seeds_and_layers_are_not_correlated():
    n = 200_000
    near = [mask(seed, n) for seed in (0, 1, 2, 3, -1, 2**32, 2**62)]
    torch.manual_seed(0)
    layers = [streams.kept(streams.drawn(near[0]), 0.3, near[0]) for _ in range(5)]
    for group in (near, layers):
        pairs = [(a, b) for i, a in enumerate(group) for b in group[:i]]
        assert max(abs(correlation(a, b)) for a, b in pairs) < 5 / math.sqrt(n)


def test_each_place_is_fair_over_seeds_in_a_row():
    """Weak seeds would show here: the same places for 4,000 seeds that follow each other, as loops over seeds have them."""
    masks = torch.stack([mask(seed, 256, 0.5) for seed in range(4000)]).double()
    rows, columns = masks.sum(1), masks.sum(0)
    for sums, n in ((rows, 256), (columns, 4000)):
        chi = float(((sums - n / 2) ** 2).sum() / (n / 4))
        assert abs(chi - len(sums)) < 5 * math.sqrt(2 * len(sums)), f"chi² {chi} for {len(sums)} sums of {n}"
    assert abs(correlation(masks[:-1], masks[1:])) < 5 / math.sqrt(masks.numel())


def test_layers_after_manual_seeds_in_a_row_are_not_correlated():
    masks = []
    for seed in range(12):
        torch.manual_seed(seed)
        x = torch.ones(50_000)
        masks += [pb.ops.dropout(x, 0.5) != 0 for _ in range(2)]
    pairs = [(a, b) for i, a in enumerate(masks) for b in masks[:i]]
    assert max(abs(correlation(a, b)) for a, b in pairs) < 5 / math.sqrt(50_000)


def test_runs_of_kept_elements_have_the_lengths_that_chance_gives():
    n, p = 600_000, 0.3
    m = mask(23, n, p).to(torch.int8)
    starts = torch.nonzero(torch.diff(m, prepend=torch.zeros(1, dtype=torch.int8)) == 1).flatten()
    ends = torch.nonzero(torch.diff(m, append=torch.zeros(1, dtype=torch.int8)) == -1).flatten()
    lengths = ends - starts + 1
    for length in range(1, 12):
        assert within(int((lengths == length).sum()), len(lengths), p * (1 - p) ** (length - 1))


def test_bits_of_words_are_fair_and_independent():
    words = streams.words(torch.tensor(123), torch.empty(200_000))
    bits = torch.stack([(words >> i) & 1 for i in range(8, 32)]).double() - 0.5
    n = words.numel()
    assert float(bits.mean(1).abs().max()) < 5 * 0.5 / math.sqrt(n)
    products = bits @ bits.T / n * 4 - torch.eye(24, dtype=torch.float64)
    assert float(products.abs().max()) < 6 / math.sqrt(n)


def test_words_hit_all_bins_evenly():
    words = streams.words(torch.tensor(5), torch.empty(1 << 20))
    counts = torch.bincount((words.to(torch.int64) + 2**31) >> 22, minlength=1024).double()
    chi = float(((counts - 1024) ** 2).sum() / 1024)
    assert abs(chi - 1023) < 5 * math.sqrt(2 * 1023)


def test_pairs_of_neighbours_hit_all_bins_evenly():
    words = streams.words(torch.tensor(6), torch.empty(1 << 20)).to(torch.int64) + 2**31
    cells = (words[:-1] >> 27) * 32 + (words[1:] >> 27)
    counts = torch.bincount(cells, minlength=1024).double()
    expected = cells.numel() / 1024
    chi = float(((counts - expected) ** 2).sum() / expected)
    assert abs(chi - 1023) < 5 * math.sqrt(2 * 1023)


def test_noise_is_normal():
    n = 400_000
    noise = streams.normal(torch.tensor(8), torch.empty(n)).double()
    assert abs(float(noise.mean())) < 5 / math.sqrt(n)
    assert abs(float((noise**2).mean()) - 1) < 5 * math.sqrt(2 / n)
    assert abs(float((noise**3).mean())) < 5 * math.sqrt(15 / n)
    assert abs(float((noise**4).mean()) - 3) < 5 * math.sqrt(96 / n)
    sorted_ = noise.sort().values
    steps = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    assert float((torch.special.ndtr(sorted_) - steps).abs().max()) < 2.2 / math.sqrt(n)  # Kolmogorov: above 2.2 once in 10⁴
    assert abs(correlation(noise[:-512], noise[512:])) < 5 / math.sqrt(n)


@pytest.mark.parametrize("op", [pb.ops.dropout, pb.ops.add_noise])
def test_a_seed_gives_one_stream_whatever_the_strides_the_dtype_and_the_threads(op):
    x = torch.ones(300, 500)
    expected = op(x, 0.5, seed=4)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(op(x, 0.5, seed=4), expected)
            assert torch.equal(op(x.t().contiguous().t(), 0.5, seed=torch.tensor(4)), expected)
            assert torch.equal(op(torch.ones(600, 500)[::2], 0.5, seed=4), expected)
            assert torch.equal(op(torch.ones(1, 1).expand(300, 500), 0.5, seed=4), expected)
            assert torch.allclose(op(x.double(), 0.5, seed=4).float(), expected, atol=1e-6)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("op", [pb.ops.dropout, pb.ops.add_noise])
def test_manual_seed_repeats_and_moves_on(op):
    x = torch.ones(1000)
    torch.manual_seed(1)
    first, second = op(x, 0.5), op(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(op(x, 0.5), first)
    assert torch.equal(op(x, 0.5), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("op", [pb.ops.dropout, pb.ops.gradient_noise])
def test_backward_has_the_forward_s_numbers_whatever_has_changed_since(op):
    def gradient(threads_then, layout):
        torch.manual_seed(9)
        x = torch.ones(400, 500, requires_grad=True)
        y = op(x, 0.5)
        torch.manual_seed(1)  # and others draw in between
        torch.rand(3)
        torch.set_num_threads(threads_then)
        y.backward(layout(torch.linspace(1, 2, 200_000).reshape(400, 500)))
        return x.grad, y

    threads = torch.get_num_threads()
    try:
        expected, y = gradient(1, torch.clone)
        for count, layout in ((2, torch.clone), (1, lambda g: g.t().contiguous().t()), (3, lambda g: torch.stack([g, g], -1)[..., 0])):
            assert torch.equal(gradient(count, layout)[0], expected)
        if op is pb.ops.dropout:
            assert torch.equal(expected == 0, y == 0)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("op", [pb.ops.dropout, pb.ops.add_noise, pb.ops.gradient_noise, pb.ops.gumbel_st])
def test_checkpointing_draws_the_same_numbers_again(op, reentrant):
    from torch.utils.checkpoint import checkpoint

    def layer(x):
        return op(torch.sin(x), 0.5) * x

    grads = []
    for run in (layer, lambda x: checkpoint(layer, x, use_reentrant=reentrant), lambda x: pb.ops.checkpointed(layer, x)):
        torch.manual_seed(3)
        x = torch.linspace(1, 2, 200, requires_grad=True)
        run(x).sum().backward()
        grads.append((x.grad, torch.rand(())))
    for gradient, drawn_next in grads[1:]:
        assert torch.equal(gradient, grads[0][0])
        assert torch.equal(drawn_next, grads[0][1])  # the generator goes on as if nothing had been computed twice


def test_vmap_draws_a_mask_for_each_example_or_one_for_all():
    rows = torch.ones(3, 400)
    torch.manual_seed(2)
    different = torch.vmap(lambda x: pb.ops.dropout(x, 0.5), randomness="different")(rows)
    same = torch.vmap(lambda x: pb.ops.dropout(x, 0.5), randomness="same")(rows)
    assert not torch.equal(different[0], different[1])
    assert torch.equal(same[0], same[1])


@pytest.mark.slow
@pytest.mark.parametrize("op", [pb.ops.dropout, pb.ops.add_noise])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_code_computes_the_same_stream(op, backend):
    torch._dynamo.reset()
    x = torch.ones(140_000, requires_grad=True)
    got = torch.compile(lambda x: op(x, 0.5, seed=4), backend=backend, fullgraph=True)(x)
    assert torch.allclose(got, op(x, 0.5, seed=4), rtol=0, atol=3e-6)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
@pytest.mark.slow
def test_data_parallel_ranks_repeat_their_own_masks():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("ddp_dropout.py"))]
    ranks = [subprocess.Popen(command, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True) for rank in range(2)]
    printed = [process.communicate(timeout=240)[0].split("\n")[:2] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    for first, second in printed:
        assert first == second
    masks, norms = zip(*(lines[0].split() for lines in printed), strict=True)
    assert masks[0] != masks[1]
    assert norms[0] == norms[1]


def test_the_first_call_of_a_thread_may_be_in_inference_mode_and_under_other_defaults():
    x = torch.linspace(-1, 1, 3000)
    want = [op(x, 0.5, seed=3) for op in (pb.ops.dropout, pb.ops.add_noise)]
    found = []

    def first():
        with torch.inference_mode(), torch.device("meta"):
            torch.set_default_dtype(torch.float64)
            try:
                found.extend(op(x, 0.5, seed=3) for op in (pb.ops.dropout, pb.ops.add_noise))
            finally:
                torch.set_default_dtype(torch.float32)
        leaf = x.clone().requires_grad_()
        found.extend(op(leaf, 0.5, seed=3).detach() for op in (pb.ops.dropout, pb.ops.add_noise))

    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    assert len(found) == 4
    for got, expected in zip(found, want * 2, strict=True):
        assert torch.equal(got, expected)


def test_a_probability_next_to_one_drops_nearly_all():
    assert int(mask(4, 100_000, 1 - 1e-12).sum()) == 0
    assert streams.threshold(1 - 1e-12) == 2**31 - 1


def test_memory_is_kept_for_a_bounded_number_of_sizes():
    expected = {n: streams.words(torch.tensor(11), torch.empty(n)) for n in range(900, 900 + 2 * streams.PARTS)}
    for _ in range(2):
        for n, words in expected.items():
            assert torch.equal(streams.words_of_block(11, 0, n), words)
    assert len(streams._scratch.parts) <= streams.PARTS
