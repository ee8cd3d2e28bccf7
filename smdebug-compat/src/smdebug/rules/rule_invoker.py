from tdbg.compat.rule import invoke_rule
