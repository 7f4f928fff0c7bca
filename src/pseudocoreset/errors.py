"""The error that a user can fix."""


class UserError(ValueError):
    """Bad input, told in one sentence.

    The message names a parameter in backticks, as Python spells it. The command line rewrites it as
    a flag, prints the sentence without a traceback and exits with code 2.

    Args:
        message: what is wrong, what was expected, what to do
        parameter: the parameter that is wrong, if it is one
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class DivergedError(UserError):
    """Numbers that are no longer finite: other settings may do."""


def require_type(value: object, kinds: type | tuple[type, ...], parameter: str, what: str) -> None:
    """Refuse a value of another type.

    Args:
        value: what was given
        kinds: the types it may have
        parameter: the parameter it was given as
        what: what to give instead, in words
    """
    if not isinstance(value, kinds):
        raise UserError(f"`{parameter}` is a {type(value).__name__}: give {what}.", parameter)
