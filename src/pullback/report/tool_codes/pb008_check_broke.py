"""PB008."""


class CheckBroke:
    """pullback's own check raised an exception.

    Why it matters:
        A check that broke has verified nothing; it is never counted as passed.

    How it is measured:
        Every exception outside the checked code ends up here, with the check's code and the error.

    Instead:
        Please report it with the printed command; ignore the check's code meanwhile.
    """

    code = "PB008"
    name = "check-broke"
    severity = "error"
