"""The search for sample inputs of an autograd.Function."""

from __future__ import annotations

from .domains import ladder as ladder
from .domains import with_argument as with_argument
from .inputs import SearchResult as SearchResult
from .inputs import find_inputs as find_inputs
