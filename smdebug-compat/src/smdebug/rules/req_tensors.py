from tdbg.rule import RequiredTensors, RequiredTensorsForTrial
