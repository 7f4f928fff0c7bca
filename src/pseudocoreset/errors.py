"""The one error that is the person's to mend."""


class UserError(Exception):
    """Bad input: one sentence that names the file or option, what was expected and what to do.

    The command line prints it alone, without a traceback, and exits with code 2.
    """
