"""What the wording of an error says about the arguments: one table, every row of which has a test that provokes the error.

The search works without this table, only less well, so an error that a later torch words differently costs little.
"""

from __future__ import annotations

from collections.abc import Iterator

from .kind_messages import KIND_MESSAGES
from .moment import Change, Moment
from .shape_messages import SHAPE_MESSAGES

# the last row of the shapes is the least specific of all
MESSAGES = (*SHAPE_MESSAGES[:-1], *KIND_MESSAGES, SHAPE_MESSAGES[-1])


def changes_for(moment: Moment) -> Iterator[Change]:
    """Yield the changes that the message of a failed attempt suggests."""
    for rule in MESSAGES:
        if (match := rule.pattern.search(moment.attempt.message)) is not None:
            yield from rule.propose(moment, match)
