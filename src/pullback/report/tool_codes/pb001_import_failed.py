"""PB001."""


class ImportFailed:
    """A file or module could not be imported, so nothing in it was checked.

    Why it matters:
        An import that fails in CI hides every Function behind it.

    How it is measured:
        The worker imports the file as pytest does, with its own timeout and `sys.argv` set to the file.

    Instead:
        Make the module importable on its own; guard scripts with `if __name__ == "__main__"`.
    """

    code = "PB001"
    name = "import-failed"
    severity = "error"
