"""Errors that users can fix."""


class UserError(ValueError):
    """Bad input, described in one sentence.

    The message names a parameter in backticks, as in Python. The command line shows it as a flag,
    prints the sentence without a traceback and exits with code 2.

    Args:
        message: what is wrong, what was expected, what to do
        parameter: the name of the wrong parameter, if there is one
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class DivergedError(UserError):
    """The computation diverged: numbers are no longer finite. Other settings may help."""


def require_type(value: object, kinds: type | tuple[type, ...], parameter: str, what: str) -> None:
    """Raise an error if a value has the wrong type.

    Args:
        value: what was given
        kinds: the types it may have
        parameter: the parameter it was given as
        what: what to give instead, in words
    """
    if not isinstance(value, kinds):
        raise UserError(f"`{parameter}` is a {type(value).__name__}: give {what}.", parameter)
