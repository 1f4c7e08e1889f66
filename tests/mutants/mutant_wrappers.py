"""Faults that any Function can have: a subclass whose backward spoils what the right one gets or returns."""

HEADER = """
def right(ctx, *cotangents):
    grads = {base}.backward(ctx, *cotangents)
    return list(grads) if isinstance(grads, tuple) else [grads]


def first(grads, function):
    at = next(i for i, g in enumerate(grads) if g is not None)
    grads[at] = function(grads[at])
    return tuple(grads)


def packed(tensor):
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides)


class Packed:
    def __init__(self, ctx):
        object.__setattr__(self, "ctx", ctx)

    def __getattr__(self, name):
        value = getattr(self.ctx, name)
        return tuple(packed(t) for t in value) if name == "saved_tensors" else value


class Mutant({base}):
    kept = {{}}

    @staticmethod
    def backward(ctx, *cotangents):
{body}
"""

BODIES = {
    "sign": "return first(right(ctx, *cotangents), lambda g: -g)",
    "doubled": "return first(right(ctx, *cotangents), lambda g: 2 * g)",
    "swapped gradients": """
grads = right(ctx, *cotangents)
a, b, *rest = grads
return b, a, *rest""",
    "ignored cotangent": "return tuple(right(ctx, *[torch.ones_like(c) for c in cotangents]))",
    "first element of the cotangent": "return tuple(right(ctx, *[c.flatten()[0].expand(c.shape).clone() if c.numel() else c for c in cotangents]))",
    "absolute cotangent": "return tuple(right(ctx, *[c.abs() for c in cotangents]))",
    "squared cotangent": "return tuple(right(ctx, *[c * c for c in cotangents]))",
    "clipped cotangent": "return tuple(right(ctx, *[c.clamp(-1, 1) for c in cotangents]))",
    "partial rows": """
def without_last_row(g):
    g = g.clone()
    g[-1:] = 0
    return g
return first(right(ctx, *cotangents), without_last_row)""",
    "flipped": "return first(right(ctx, *cotangents), lambda g: g.flip(0))",
    "shifted": "return first(right(ctx, *cotangents), lambda g: g.roll(1, -1))",
    "transposed": "return first(right(ctx, *cotangents), lambda g: g.mT.reshape(g.shape))",
    "low precision inside": "return first(right(ctx, *cotangents), lambda g: g.to(torch.bfloat16).to(g.dtype))",
    "last block": """
def whole_blocks(g):
    flat = g.flatten().clone()
    if flat.numel() > 64:
        flat[flat.numel() // 64 * 64 :] = 0
    return flat.reshape(g.shape)
return first(right(ctx, *cotangents), whole_blocks)""",
    "odd sizes": """
def pairs(g):
    g = g.clone()
    if g.shape[-1] % 2:
        g[..., -1] = 0
    return g
return first(right(ctx, *cotangents), pairs)""",
    "strides ignored": "return tuple(right(ctx, *[packed(c) for c in cotangents]))",
    "inputs' strides ignored": "return tuple(right(Packed(ctx), *cotangents))",
    "written grad_output": """
grads = right(ctx, *[c.clone() for c in cotangents])
cotangents[0].mul_(2)
return tuple(grads)""",
    "stale gradient": """
grads = right(ctx, *cotangents)
key = [None if g is None else g.shape for g in grads]
return Mutant.kept.setdefault(str(key), tuple(grads))""",
    "second backward": """
grads = right(ctx, *cotangents)
ctx.saved_tensors[0].data.mul_(2)
return tuple(grads)""",
    "moves the random state": """
torch.manual_seed(0)
return tuple(right(ctx, *cotangents))""",
    "wrong when frozen": """
grads = right(ctx, *cotangents)
if not ctx.needs_input_grad[0]:
    grads[1] = 2 * grads[1]
return tuple(grads)""",
    "single precision gradient": "return first(right(ctx, *cotangents), lambda g: g.float())",
}


def text_of(kind, base):
    """Return the source of a subclass `Mutant` of the class named `base` with the fault `kind`."""
    body = "\n".join(f"        {line}" for line in BODIES[kind].strip().splitlines())
    return HEADER.format(base=base, body=body)
