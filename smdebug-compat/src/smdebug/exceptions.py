from tdbg.exceptions import *  # noqa: F403
from tdbg.exceptions import ModeKeys  # noqa: F401
