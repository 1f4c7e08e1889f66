"""Importing this module imports everything a check needs, the compiler too, so that processes forked afterwards share it."""

from .. import _compat
from . import warm_eager as warm_eager

_compat.import_compiler()
