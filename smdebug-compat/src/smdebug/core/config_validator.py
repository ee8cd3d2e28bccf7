from .._not_offered import INSIDE, not_offered
from .utils import FRAMEWORK, is_framework_version_supported

SupportedFrameworks = list(FRAMEWORK)


def reset_config_validator():
    """Nothing is remembered: USE_SMDEBUG is read whenever a hook is asked for."""


__getattr__ = not_offered(__name__, INSIDE, "ConfigValidator", "get_config_validator")
