"""PB002."""


class Crashed:
    """The process died, or backward raises on inputs that forward accepted and that were given or recorded.

    Why it matters:
        A program that reaches this backward stops, or dies without a Python error.

    How it is measured:
        Forward runs, then backward with a random signed grad_output laid out like the output. On searched inputs the error is
        reported under PB004 instead, since the inputs may be to blame.

    Instead:
        Follow the error in the evidence: it is the one your backward raised.
    """

    code = "PB002"
    name = "crashed"
    severity = "error"
