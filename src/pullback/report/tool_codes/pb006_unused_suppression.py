"""PB006."""


class UnusedSuppression:
    """A `# pullback: ignore[...]` comment suppresses nothing.

    Why it matters:
        A stale suppression hides the next fault of that code.

    How it is measured:
        After a run each suppression is matched against the findings of its class.

    Instead:
        Remove the comment or the code from its list.
    """

    code = "PB006"
    name = "unused-suppression"
    severity = "warning"
