"""The base of all errors that a user can put right."""


class UserError(Exception):
    """Something the user can put right: the command line prints the message alone, without a traceback.

    The message says what is wrong, where, what was given and expected, and what to do.
    """
