"""PB004."""


class NoInputs:
    """No usable sample inputs: the search found none, or forward refuses those that were given.

    Why it matters:
        Nothing was checked; a Function without inputs is never reported as passed.

    How it is measured:
        The search guesses arguments from the signature, the source and the errors; its best attempt and the last error are
        printed as a `pullback_cases()` skeleton.

    Instead:
        Write `pullback_cases()` in the file with one call that works, or pass the inputs.
    """

    code = "PB004"
    name = "no-inputs"
    severity = "note"
