from tdbg.compat.rule import RequiredTensors, RequiredTensorsForTrial, Rule, invoke_rule
