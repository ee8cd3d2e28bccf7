from tdbg.rule import RequiredTensors, RequiredTensorsForTrial, Rule, invoke_rule
