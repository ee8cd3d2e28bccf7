"""Words of messages, and where they are said."""

from __future__ import annotations

import logging
import os


def counted(n: int, one: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{n} {one}" if n == 1 else f"{n} {one}s"


def on_the_screen(logger: logging.Logger) -> None:
    """smdebug's lines are on the screen without any configuration of logging; so are ours."""
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("[%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(filename)s:%(lineno)d] "
                                           "%(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    level = os.environ.get("SMDEBUG_LOG_LEVEL", "info").strip().lower()
    levels = {"debug": logging.DEBUG, "warning": logging.WARNING, "error": logging.ERROR, "critical": logging.CRITICAL,
              "off": logging.CRITICAL + 1}
    logger.setLevel(levels.get(level, logging.INFO))
    logger.propagate = False
