from tdbg.compat.rule import Rule
