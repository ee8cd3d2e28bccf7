from tdbg.compat.rule import Actions
