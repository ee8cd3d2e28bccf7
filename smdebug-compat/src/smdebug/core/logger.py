import logging


def get_logger(name="smdebug"):
    return logging.getLogger(name)
