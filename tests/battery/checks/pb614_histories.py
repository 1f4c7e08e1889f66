"""Kills and spares of PB614 with what a call leaves of its numbers, of its needs, or with its arguments."""

import torch

import pullback as pb


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()


kills = []
spares = []


class GainOnClass(torch.autograd.Function):
    """The gain of the last call is that of every backward that is still to come."""

    gain = 1.0

    @staticmethod
    def forward(ctx, x, gain):
        GainOnClass.gain = gain
        ctx.save_for_backward(x)
        return x.square() * gain

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy * GainOnClass.gain, None


class GainOnContext(GainOnClass):
    @staticmethod
    def forward(ctx, x, gain):
        GainOnClass.gain = ctx.gain = gain
        ctx.save_for_backward(x)
        return x.square() * gain

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy * ctx.gain, None


kills.append(pb.case(GainOnClass, x(3), 0.75))
spares.append(pb.case(GainOnContext, x(3), 0.75))


class TurnOnClass(torch.autograd.Function):
    """The same with a flag."""

    turned = False

    @staticmethod
    def forward(ctx, x, turned):
        TurnOnClass.turned = turned
        return x.flip(-1) if turned else x * 1.5

    @staticmethod
    def backward(ctx, dy):
        return (dy.flip(-1) if TurnOnClass.turned else dy * 1.5), None


kills.append(pb.case(TurnOnClass, x(3), False))


class Range:
    """The largest entry so far, which later calls divide by."""

    def __init__(self):
        self.largest, self.scale = 1.0, 1.0


class ScaleReadLate(torch.autograd.Function):
    """Backward reads the scale where the next forward has put another one."""

    @staticmethod
    def forward(ctx, x, seen):
        seen.scale = 1 / seen.largest
        seen.largest = max(seen.largest, 2 * float(x.detach().abs().max()))
        ctx.seen = seen
        return x * seen.scale

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.seen.scale, None


class ScaleReadInForward(ScaleReadLate):
    @staticmethod
    def forward(ctx, x, seen):
        y = ScaleReadLate.forward(ctx, x, seen)
        ctx.scale = seen.scale
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.scale, None


kills.append(pb.case(ScaleReadLate, x(4), Range()))
spares.append(pb.case(ScaleReadInForward, x(4), Range()))


class HooksItsWeight(torch.autograd.Function):
    """Every call leaves one more hook on the weight."""

    @staticmethod
    def forward(ctx, x, weight):
        if weight.requires_grad:
            weight.register_hook(lambda g: g * 0.5)
        ctx.save_for_backward(x, weight)
        return x * weight * 0.5

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy * weight * 0.5, dy * x


class HalvesInBackward(HooksItsWeight):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight * 0.5

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy * weight * 0.5, dy * x * 0.5


kills.append(pb.case(HooksItsWeight, x(4), x(4)))
spares.append(pb.case(HalvesInBackward, x(4), x(4)))


class RemembersNeeds(torch.autograd.Function):
    """What the first call needs is all that any call gets."""

    needs = None

    @staticmethod
    def forward(ctx, x, weight):
        if RemembersNeeds.needs is None:
            RemembersNeeds.needs = tuple(ctx.needs_input_grad)
        ctx.needs = RemembersNeeds.needs
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy * weight if ctx.needs[0] else None, dy * x if ctx.needs[1] else None


class AsksForNeeds(RemembersNeeds):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.needs = ctx.needs_input_grad
        ctx.save_for_backward(x, weight)
        return x * weight


kills.append(pb.case(RemembersNeeds, x(4), x(4)))
spares.append(pb.case(AsksForNeeds, x(4), x(4)))
