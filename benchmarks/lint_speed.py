"""How long `pullback lint` takes: 5,000 files, 1,000 of them with a Function in 300 lines or more.

    python benchmarks/lint_speed.py [--files 5000] [--functions 1000]

The files are written to a temporary folder, in the styles of kernels libraries and model code. torch is not imported.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

FUNCTION = """
class Op{n}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps=1e-6, fused=True):
        rows, columns = x.shape[0], x.shape[-1]
        flat = x.reshape(rows, -1)
        mean, rstd = statistics_{n}(flat, eps)
        normalized = (flat - mean[:, None]) * rstd[:, None]
        out = normalized * weight + bias if bias is not None else normalized * weight
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.eps, ctx.fused = eps, fused
        ctx.has_bias = bias is not None
        return out.view(x.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        x, weight, mean, rstd = ctx.saved_tensors
        grad_output = grad_output.reshape(x.shape[0], -1).contiguous()
        grad_x = torch.empty_like(x)
        if ctx.fused:
            kernel_{n}[(x.shape[0],)](grad_output, x, weight, mean, rstd, grad_x, ctx.eps)
        else:
            grad_x = reference_{n}(grad_output, x, weight, mean, rstd)
        grad_weight = (grad_output * (x - mean[:, None]) * rstd[:, None]).sum(0) if ctx.needs_input_grad[1] else None
        grad_bias = grad_output.sum(0) if ctx.has_bias else None
        return grad_x, grad_weight, grad_bias, None, None


def statistics_{n}(flat, eps):
    mean = flat.mean(-1)
    variance = flat.var(-1, unbiased=False)
    return mean, torch.rsqrt(variance + eps)


def reference_{n}(grad_output, x, weight, mean, rstd):
    normalized = (x - mean[:, None]) * rstd[:, None]
    scaled = grad_output * weight
    first = scaled.mean(-1, keepdim=True)
    second = (scaled * normalized).mean(-1, keepdim=True)
    return (scaled - first - normalized * second) * rstd[:, None]
"""

MODULE = """
class Block{n}(torch.nn.Module):
    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.width, self.heads = width, heads
        self.query = torch.nn.Linear(width, width)
        self.key = torch.nn.Linear(width, width)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, hidden, mask=None):
        batch, length, _ = hidden.shape
        q = self.query(hidden).view(batch, length, self.heads, -1).transpose(1, 2)
        k = self.key(hidden).view(batch, length, self.heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-1, -2) / (self.width // self.heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None], float("-inf"))
        return self.dropout(scores.softmax(-1))
"""


def write(folder: Path, files: int, functions: int) -> None:
    """Write the files: each of at least 300 lines where it holds a Function."""
    for number in range(files):
        package = folder / f"package_{number // 100}"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        body = (FUNCTION if number < functions else "").format(n=number)
        body += "".join(MODULE.format(n=f"{number}_{i}") for i in range(16 if number < functions else 4))
        (package / f"module_{number}.py").write_text(f"import torch\n{body}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--functions", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), arguments.files, arguments.functions)
        start, cpu = time.perf_counter(), time.process_time()
        from pullback.linter.discover import files
        from pullback.linter.engine import lint

        report = lint(files([Path(folder)]))
        wall, used = time.perf_counter() - start, time.process_time() - cpu
    print(f"{arguments.files} files, {len(report.subjects)} Functions, {len(report.findings)} findings: {used:.2f} s of one core ({wall:.2f} s wall)")
    print(f"torch imported: {'torch' in sys.modules}")


if __name__ == "__main__":
    main()
