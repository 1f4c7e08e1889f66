"""Importing this module imports everything that checks without the compiler need, so that processes forked afterwards share it."""

from torch.fx.experimental import symbolic_shapes as symbolic_shapes  # torch imports it at the first autograd.grad, which must not run before a fork

from . import check as check
from . import samples as samples
from . import search as search
from . import searched as searched
from .base import all_checks

all_checks()
