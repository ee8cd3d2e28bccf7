"""Words of messages, and where they are said."""

from __future__ import annotations

import logging
import os

_DRAWN_AS_NOTHING = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
                              + "".join(map(chr, range(0xFE00, 0xFE10))))


def printable(text: object) -> str:
    """What is safe to print of a name or text that somebody else wrote: control characters, marks of direction and
    invisible ones are spelled out. As `base::Printable` of the command line; a blank of any kind stays."""
    text = str(text)
    if text.isprintable() and text.isascii():
        return text
    return "".join(c if (c.isprintable() or c.isspace() and c > "\xa0" and c not in "\u2028\u2029")
                   and c not in _DRAWN_AS_NOTHING
                   else f"\\x{ord(c):02x}" if c < "\x80"
                   else f"\\u{ord(c):04x}" if c < "\U00010000" else f"\\U{ord(c):08x}" for c in text)


def wrapped(text: str, indent: int, columns: int = 100) -> str:
    """Broken at blanks, so that no line is wider than `columns`: the first begins behind `indent` columns, where
    something stands already, and so do those that follow. As the command line's `Wrapped`; a word wider than a line
    stays whole."""
    out, column = "", indent
    for n, word in enumerate(text.split(" ")):
        if n and column > indent and column + 1 + len(word) > columns:
            out, column = out.rstrip(" ") + "\n" + " " * indent, indent
        elif n:
            out, column = out + " ", column + 1
        out, column = out + word, column + len(word)
    return out


def error_text(error: BaseException) -> str:
    """ "ValueError: what it says"; its class alone where it says nothing, or cannot say it."""
    kind = type(error).__name__
    try:
        said = str(error)
    except Exception:           # a class whose words need what is not there
        return kind
    return f"{kind}: {said}" if said.strip() else kind


def counted(n: int, one: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{n} {one}" if n == 1 else f"{n} {one}s"


def on_the_screen(logger: logging.Logger) -> None:
    """smdebug's lines are on the screen without any configuration of logging; so are ours."""
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    line = "[%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(filename)s:%(lineno)d] %(message)s"
    handler.setFormatter(logging.Formatter(line, "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    level = os.environ.get("SMDEBUG_LOG_LEVEL", "info").strip().lower()
    levels = {"debug": logging.DEBUG, "warning": logging.WARNING, "error": logging.ERROR, "critical": logging.CRITICAL,
              "off": logging.CRITICAL + 1}
    logger.setLevel(levels.get(level, logging.INFO))
    logger.propagate = False
