from tdbg.compat.exceptions import *  # noqa: F403
