"""PB003."""


class TimedOut:
    """A check did not end within its time limit.

    Why it matters:
        A backward that hangs or is thousands of times slower than its forward stops training.

    How it is measured:
        Each check announces itself before it starts; the parent kills the worker when the limit (`--timeout`, 60 s a check) has passed.

    Instead:
        Raise `--timeout` if the Function is meant to be slow; otherwise look for a loop whose length depends on the input's values.
    """

    code = "PB003"
    name = "timed-out"
    severity = "error"
