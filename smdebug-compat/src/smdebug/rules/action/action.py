from tdbg.rule import Actions

ALLOWED_ACTIONS = list(Actions.KNOWN)
