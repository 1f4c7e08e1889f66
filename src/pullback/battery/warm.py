"""Importing this module imports everything a check needs, so that processes forked afterwards share it."""

from .. import _compat
from . import check as check
from . import samples as samples
from . import search as search
from . import searched as searched
from .base import all_checks

_compat.import_compiler()
all_checks()
