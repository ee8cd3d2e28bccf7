from tdbg.rule import invoke_rule
