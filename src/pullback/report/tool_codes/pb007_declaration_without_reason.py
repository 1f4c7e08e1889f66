"""PB007."""


class DeclarationWithoutReason:
    """A gradient is declared as not exact or not linear, without a reason.

    Why it matters:
        The next reader cannot tell a deliberate gradient from a silenced fault.

    How it is measured:
        A declaration with `exact=False`, `linear=False` or a surrogate is looked up for a non-empty `reason`.

    Instead:
        Add `reason="…"` to the declaration.
    """

    code = "PB007"
    name = "declaration-without-reason"
    severity = "note"
