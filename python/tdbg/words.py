"""Words of messages."""


def counted(n: int, one: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{n} {one}" if n == 1 else f"{n} {one}s"
