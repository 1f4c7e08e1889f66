"""One row of the message table: a pattern, and what to change where an error matches it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .moment import Change, Moment

Propose = Callable[[Moment, "re.Match[str]"], Iterator[Change]]


@dataclass(frozen=True, slots=True)
class MessageRule:
    """One row of the table.

    Args:
        name: What the message is about.
        pattern: Found in ``"Type: text"`` of the error.
        propose: Yields changes to the arguments, best first.
    """

    name: str
    pattern: re.Pattern[str]
    propose: Propose


def enter_into(table: list[MessageRule]) -> Callable[[str, str], Callable[[Propose], Propose]]:
    """Return a decorator ``message(name, pattern)`` that enters a function into `table`."""

    def message(name: str, pattern: str) -> Callable[[Propose], Propose]:
        def enter(propose: Propose) -> Propose:
            table.append(MessageRule(name, re.compile(pattern, re.IGNORECASE), propose))
            return propose

        return enter

    return message
