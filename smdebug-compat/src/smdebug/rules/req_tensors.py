from tdbg.compat.rule import RequiredTensors, RequiredTensorsForTrial
