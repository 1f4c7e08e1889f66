"""PB005."""


class UnknownSetting:
    """A key in `[tool.pullback]`, a declaration or a case that pullback does not know.

    Why it matters:
        A misspelt setting silently does nothing.

    How it is measured:
        Keys are compared with the known ones; near ones are suggested.

    Instead:
        Correct the spelling; the reference page lists the keys.
    """

    code = "PB005"
    name = "unknown-setting"
    severity = "error"
