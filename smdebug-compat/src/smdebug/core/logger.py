"""smdebug's logger: Python's, named "smdebug", which says the same thing three times at most."""

import logging
from collections import Counter

from .config_constants import LOG_DUPLICATION_THRESHOLD


class DuplicateLogFilter:
    """Lets a message pass LOG_DUPLICATION_THRESHOLD times."""

    def __init__(self):
        self.msgs = Counter()
        self.repeat_threshold = LOG_DUPLICATION_THRESHOLD

    def filter(self, record) -> bool:
        # By the text that is said: two messages of one form, about two things, are two.
        text = record.getMessage()
        self.msgs[text] += 1
        return self.msgs[text] <= self.repeat_threshold


class MaxLevelFilter(logging.Filter):
    """Lets what is below `level` pass."""

    def __init__(self, level):
        super().__init__()
        self.level = level

    def filter(self, record) -> bool:
        return record.levelno < self.level


def get_logger(name="smdebug"):
    logger = logging.getLogger(name)
    if not any(isinstance(one, DuplicateLogFilter) for one in logger.filters):
        logger.addFilter(DuplicateLogFilter())
    return logger
