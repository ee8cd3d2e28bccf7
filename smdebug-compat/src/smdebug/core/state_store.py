from tdbg.hook.checkpoint_state import StateStore
