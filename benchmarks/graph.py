"""How long it takes to walk and to draw graphs, beside torchviz and Graphviz where they are installed.

    python benchmarks/graph.py [--rounds 5]

Times are minimums of a few rounds, in the thread's own CPU time. "walk" lists the nodes in order; "graph" adds names, shapes, places and saved
bytes; "SVG" folds, lays out and draws. torchviz (optional: `pip install torchviz`) only writes the text that Graphviz would lay out, and walks by
recursion: "none" stands where that overflows the recursion limit. The last column is its time over that of "graph".
"""

import argparse
import gc
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import pullback as pb
from pullback.capture.graph import walk


def networks():
    path = Path(__file__).resolve().parents[1] / "tests" / "views" / "networks.py"
    spec = importlib.util.spec_from_file_location("networks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cheapest(run: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    return best


def torchviz_seconds(y: torch.Tensor, rounds: int) -> float | None:
    """Return how long torchviz writes its text; None where it overflows the recursion limit.

    Raises:
        ImportError: if it is not installed.
    """
    from torchviz import make_dot  # type: ignore[import-not-found]

    try:
        return cheapest(lambda: make_dot(y, show_attrs=True, show_saved=True).source, rounds)
    except RecursionError:
        return None


def milliseconds(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds * 1e3:.1f}"


def node_limit() -> int | None:
    """Return the longest chain that torchviz walks at the default recursion limit."""
    if importlib.util.find_spec("torchviz") is None:
        return None
    low, high = 1, 4000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if torchviz_seconds(networks().chain(middle)[0], 1) is None else (middle, high)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the walking and drawing of graphs.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    nets = networks()
    graphs = {
        "12-layer transformer": nets.transformer,
        "ResNet": nets.resnet,
        "RNN of 1,000 steps": nets.rnn,
        "branchy, no repetition": nets.branchy,
        "chain of 500": lambda: nets.chain(500),
        "chain of 100,000": nets.chain,
    }
    installed = importlib.util.find_spec("torchviz") is not None
    print(f"{'ms':24}{'nodes':>9}{'walk':>9}{'graph':>9}{'SVG':>9}{'torchviz':>10}{'ratio':>8}")
    for name, make in graphs.items():
        y, params = make()
        graph = pb.graph(y, params=params)
        walked = cheapest(lambda y=y: walk([y]), rounds)
        built = cheapest(lambda y=y, params=params: pb.graph(y, params=params), rounds)
        drawn = cheapest(graph.to_svg, rounds)
        other = torchviz_seconds(y, 1) if installed and len(graph.nodes) < 50_000 else None
        ratio = f"{other / built:.1f}" if other is not None else ""
        shown = milliseconds(other) if installed else "-"
        print(f"{name:24}{len(graph.nodes):>9,}{milliseconds(walked):>9}{milliseconds(built):>9}{milliseconds(drawn):>9}{shown:>10}{ratio:>8}")
    limit = node_limit()
    print(f"torchviz's longest chain at a recursion limit of {sys.getrecursionlimit()}: {'not installed' if limit is None else limit}")


if __name__ == "__main__":
    main()
