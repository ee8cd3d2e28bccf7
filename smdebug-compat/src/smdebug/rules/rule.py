from tdbg.rule import Rule
