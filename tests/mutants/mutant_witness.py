"""Experiments that show a fault without pullback: difference quotients, and what a caller would see. Each returns whether the Function is wrong."""

import gc
import itertools
import weakref

import torch

STEP = 1e-6
WRONG = 1e-3


def fresh(arguments):
    return tuple(a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in arguments)


def leaves(arguments):
    return [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]


def run(function, arguments):
    """Return leaves and differentiable outputs of one call; leaves are cloned first, since some Functions write into their inputs."""
    arguments = fresh(arguments)
    wanted = leaves(arguments)
    results = function.apply(*[a.clone() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in arguments])
    results = results if isinstance(results, tuple) else (results,)
    return wanted, [y for y in results if y.requires_grad]


def gradients(function, arguments, cotangents):
    wanted, outputs = run(function, arguments)
    found = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
    return [torch.zeros_like(a) if g is None else g for a, g in zip(wanted, found, strict=True)]


def cotangents_for(function, arguments, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [signed(y, generator) for y in run(function, arguments)[1]]


def signed(y, generator):
    values = torch.tensor([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], dtype=torch.float64)

    def draw():
        return values[torch.randint(6, y.shape, generator=generator)]

    return torch.complex(draw(), draw()) if y.is_complex() else draw().to(y.dtype)


def raises(experiment):
    try:
        return experiment()
    except Exception:
        return True


def apart(a, b):
    """Whether two lists of gradients differ by more than a thousandth of the larger one, or in their shapes."""
    return any(
        x.shape != y.shape or not float((x - y).abs().max()) <= WRONG * max(float(y.abs().max()), 1e-6)
        for x, y in zip(a, b, strict=True)
        if y.numel()
    )


def value(function, arguments):
    """The change along random directions is not what backward predicts, in one of eight draws."""
    return raises(lambda: any(_off(function, arguments, seed) for seed in range(8)))


def _off(function, arguments, seed):
    cotangents = cotangents_for(function, arguments, seed)
    generator = torch.Generator().manual_seed(seed + 100)
    got = gradients(function, arguments, cotangents)
    wanted = [i for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and a.requires_grad]
    for i, gradient in zip(wanted, got, strict=True):
        direction = signed(arguments[i], generator)
        change = _paired(function, arguments, i, direction, cotangents)
        predicted = float((gradient * direction.conj()).real.sum())
        if not abs(predicted - change) <= WRONG * max(abs(change), 0.1 * float(gradient.abs().sum()), 1e-6):
            return True
    return False


def _paired(function, arguments, i, direction, cotangents):
    sides = []
    for sign in (1, -1):
        moved = [a.detach() + sign * STEP * direction if j == i else a for j, a in enumerate(arguments)]
        moved = [m.requires_grad_() if j == i else m for j, m in enumerate(moved)]
        outputs = run(function, moved)[1]
        sides.append(sum(float((c.conj() * y.detach()).real.sum()) for c, y in zip(cotangents, outputs, strict=True)))
    return (sides[0] - sides[1]) / (2 * STEP)


def larger(function, arguments):
    """The value is wrong with some dimension or other made larger: rows repeated, columns repeated, then one cut off."""
    return any(value(function, grown) for grown in _grown(arguments))


def _grown(arguments):
    sizes = {n for a in arguments if isinstance(a, torch.Tensor) for n in a.shape}
    for size, new in itertools.product(sizes, (7, 35)):
        yield tuple(_resized(a, size, new) if isinstance(a, torch.Tensor) else a for a in arguments)


def _resized(tensor, size, new):
    for dim, n in enumerate(tensor.shape):
        if n == size:
            tensor = torch.cat([tensor.detach()] * (new // n + 1), dim).narrow(dim, 0, new)
            if tensor.is_floating_point():
                tensor = tensor + torch.linspace(0, 0.3, tensor.numel(), dtype=tensor.dtype).reshape(tensor.shape)
    return tensor.detach().requires_grad_(tensor.is_floating_point() or tensor.is_complex())


def cotangent_layout(function, arguments):
    """The same grad_outputs, transposed in memory, every other element, or expanded, give other gradients."""

    def experiment():
        for seed in range(4):
            plain = cotangents_for(function, arguments, seed)
            wholes = [[torch.stack([c, c], -1)[..., 0] for c in plain], [c.flatten()[:1].expand(c.numel()).reshape(c.shape) for c in plain]]
            wholes[1] = [c.flatten()[:1].reshape([1] * c.dim()).expand(c.shape) for c in plain]
            wholes.append([c.mT.contiguous().mT if c.dim() > 1 else c for c in plain])
            for laid in wholes:
                if apart(
                    gradients(function, arguments, laid),
                    gradients(function, arguments, [c.clone(memory_format=torch.contiguous_format) for c in laid]),
                ):
                    return True
        return False

    return raises(experiment)


def input_layout(function, arguments):
    """The same inputs, spread out in memory, give other gradients."""

    def experiment():
        cotangents = cotangents_for(function, arguments)
        spread = [
            torch.stack([a.detach(), a.detach() + 1], -1)[..., 0].requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
            for a in arguments
        ]
        wanted = leaves(spread)
        outputs = function.apply(*spread)
        outputs = [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if y.requires_grad]
        return apart(list(torch.autograd.grad(outputs, wanted, cotangents)), gradients(function, arguments, cotangents))

    return raises(experiment)


def writes_cotangent(function, arguments):
    cotangents = cotangents_for(function, arguments)
    handed = [c.clone() for c in cotangents]
    gradients(function, arguments, handed)
    return any(not torch.equal(a, b) for a, b in zip(cotangents, handed, strict=True))


def remembers(function, arguments):
    """Two forwards and then two backwards give other gradients than one call at a time."""

    def experiment():
        other = tuple(a.detach() * 1.1 if isinstance(a, torch.Tensor) and a.requires_grad else a for a in arguments)
        other = tuple(o.requires_grad_() if isinstance(a, torch.Tensor) and a.requires_grad else o for o, a in zip(other, arguments, strict=True))
        cotangents = cotangents_for(function, arguments)
        wanted, outputs = run(function, arguments)
        moved, others = run(function, other)
        torch.autograd.grad(others, moved, [2 * c for c in cotangents], allow_unused=True)
        found = torch.autograd.grad(outputs, wanted, cotangents)
        return _off_from(function, arguments, cotangents, found)

    return raises(experiment)


def _off_from(function, arguments, cotangents, found):
    wanted = [i for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and a.requires_grad]
    generator = torch.Generator().manual_seed(1)
    for i, gradient in zip(wanted, found, strict=True):
        direction = signed(arguments[i], generator)
        change = _paired(function, arguments, i, direction, cotangents)
        if abs(float((gradient * direction.conj()).real.sum()) - change) > WRONG * max(abs(change), 0.1 * float(gradient.abs().sum()), 1e-6):
            return True
    return False


def overwrites_result(function, arguments):
    """What one backward returned changes when another runs."""
    cotangents = cotangents_for(function, arguments)
    first = gradients(function, arguments, cotangents)
    before = [g.clone() for g in first]
    gradients(function, arguments, [3 * c for c in cotangents])
    return apart(first, before)


def second_backward(function, arguments):
    def experiment():
        wanted, outputs = run(function, arguments)
        cotangents = cotangents_for(function, arguments)
        first = [g.clone() for g in torch.autograd.grad(outputs, wanted, [c.clone() for c in cotangents], retain_graph=True)]
        return apart(torch.autograd.grad(outputs, wanted, [c.clone() for c in cotangents]), first)

    return raises(experiment)


def frozen(function, arguments):
    """With one input frozen, the gradients of the others change."""

    def experiment():
        cotangents = cotangents_for(function, arguments)
        all_of_them = gradients(function, arguments, cotangents)
        wanted = [i for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and a.requires_grad]
        for out in wanted:
            some = [a.detach() if i == out else a for i, a in enumerate(arguments)]
            rest = [g for i, g in zip(wanted, all_of_them, strict=True) if i != out]
            if apart(gradients(function, some, cotangents), rest):
                return True
        return False

    return raises(experiment)


def undefined(function, arguments):
    """With one output left out of the loss, backward raises or gives another gradient than for a zero grad_output."""

    def experiment():
        cotangents = cotangents_for(function, arguments)
        for out in range(len(cotangents)):
            wanted, outputs = run(function, arguments)
            zero = [torch.zeros_like(c) if i == out else c for i, c in enumerate(cotangents)]
            some = [y for i, y in enumerate(outputs) if i != out]
            found = torch.autograd.grad(some, wanted, [c for i, c in enumerate(cotangents) if i != out])
            if apart(found, gradients(function, arguments, zero)):
                return True
        return False

    return raises(experiment)


def hides_residuals(function, arguments):
    """Floating tensors that backward needs do not pass through the hooks for saved tensors."""
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        outputs = run(function, arguments)[1]
    holders = [v for v in vars(outputs[0].grad_fn).values() if isinstance(v, (torch.Tensor, tuple))]
    return any(isinstance(t, torch.Tensor) and t.is_floating_point() for v in holders for t in (v if isinstance(v, tuple) else (v,)))


def keeps_itself_alive(function, arguments):
    gc.collect()
    gc.disable()
    try:
        alive = weakref.ref(run(function, arguments)[1][0])
        return alive() is not None
    finally:
        gc.enable()


def moves_random_state(function, arguments):
    """Random numbers after backward do not go on from those before it."""
    torch.manual_seed(5)
    wanted, outputs = run(function, arguments)
    cotangents = cotangents_for(function, arguments)
    before = torch.get_rng_state()
    torch.autograd.grad(outputs, wanted, cotangents)
    return not torch.equal(before, torch.get_rng_state())


def writes_input(function, arguments):
    """forward changes an argument, and what it returns is not that argument itself, as it would be if it were marked dirty."""
    given = [a.detach().clone().requires_grad_(a.requires_grad).clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    result = function.apply(*given)
    changed = [g for g, a in zip(given, arguments, strict=True) if isinstance(a, torch.Tensor) and not torch.equal(g, a)]
    return any(g is not result for g in changed)


def narrow_gradient(function, arguments):
    """backward returns a gradient of another dtype than its input."""
    returned = []

    class Observed(function):
        @staticmethod
        def backward(ctx, *cotangents):
            grads = function.backward(ctx, *cotangents)
            returned.extend(grads if isinstance(grads, tuple) else (grads,))
            return grads

    gradients(Observed, arguments, cotangents_for(function, arguments))
    return any(g is not None and isinstance(a, torch.Tensor) and g.dtype != a.dtype for g, a in zip(returned, arguments, strict=False))


def at_large_values(function, arguments):
    """Where the forward is finite the gradient is not."""
    large = tuple(a.detach().mul(2000).requires_grad_() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in arguments)
    _, outputs = run(function, large)
    found = gradients(function, large, cotangents_for(function, large))
    return all(bool(torch.isfinite(y).all()) for y in outputs) and not all(bool(torch.isfinite(g).all()) for g in found)


def jvp(function, arguments):
    generator = torch.Generator().manual_seed(0)
    primal = arguments[0].detach()
    direction = signed(primal, generator)
    _, found = torch.func.jvp(function.apply, (primal,), (direction,))
    change = (function.apply(primal + STEP * direction) - function.apply(primal - STEP * direction)) / (2 * STEP)
    return apart([found], [change])


def other_arguments(function, arguments):
    """Wrong with a flag the other way round, or without an optional argument."""
    flipped = tuple((not a) if isinstance(a, bool) else a for a in arguments)
    return value(function, flipped if flipped != arguments else arguments[:-1])
