"""What a person can act on when programs cannot be built."""


class BuildError(Exception):
    """The programs could not be compiled; its text is one line."""
