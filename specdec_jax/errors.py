"""The one error that the package raises for a user's mistake."""


class SpecdecError(ValueError):
    """Bad input, told in one sentence: what was given, what was needed, and the remedy.

    The command line prints the sentence alone and exits with status 2; a traceback would hide it.
    """
