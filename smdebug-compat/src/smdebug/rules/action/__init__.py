from tdbg.rule import Actions
