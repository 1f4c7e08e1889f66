"""Make any string that comes from a checked program safe to print."""

from __future__ import annotations

import unicodedata

LIMIT = 64 * 1024
_ESCAPED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(text: object, *, limit: int = LIMIT, keep_newlines: bool = False) -> str:
    """Return `text` with control characters, ANSI sequences and bidi marks written as escapes, cut at `limit` characters.

    Anything may be passed; a `__str__` that raises becomes a description of the object.
    """
    try:
        string = text if type(text) is str else str(text)
    except BaseException as error:
        string = f"<{type(text).__name__} whose __str__ raised {type(error).__name__}>"
    cut = len(string) > limit
    string = string[:limit]
    if not string.isascii() or not string.isprintable():
        string = "".join(_escape(c, keep_newlines) for c in string)
    return string + (f"… [cut at {limit} characters]" if cut else "")


def _escape(char: str, keep_newlines: bool) -> str:
    if char == "\n" and keep_newlines:
        return char
    if unicodedata.category(char) in _ESCAPED:
        point = ord(char)
        return f"\\x{point:02x}" if point < 256 else f"\\u{point:04x}" if point < 65536 else f"\\U{point:08x}"
    return char
