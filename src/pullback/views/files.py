"""Writing a result to a file, in the form that its name ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


def write_form(owner: str, forms: Mapping[str, Callable[[], str]], path: str | Path) -> None:
    """Write the form that the name of a file asks for.

    Args:
        owner: The class whose `save` was called.
        forms: What makes the text, by the ending of the name.
        path: The file.

    Raises:
        ValueError: for another ending.
    """
    form = forms.get(Path(path).suffix)
    if form is None:
        raise ValueError(f"{owner}.save writes {', '.join(forms)}; the name {str(path)!r} ends with none of them")
    Path(path).write_text(form() + "\n", encoding="utf-8")
