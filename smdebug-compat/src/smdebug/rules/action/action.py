from tdbg.compat.rule import Actions

from .message_action import MessageAction
from .stop_training_action import StopTrainingAction

ALLOWED_ACTIONS = list(Actions.KNOWN)
