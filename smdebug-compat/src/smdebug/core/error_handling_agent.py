from .._not_offered import not_offered

BASE_ERROR_MESSAGE = "SMDebug error has occurred, disabling SMDebug for the rest of the training job. Stack trace:"

__getattr__ = not_offered(__name__, "nothing of tdbg's is raised into a training, so there is nothing to switch off",
                          "ErrorHandlingAgent")
