"""Public names of tdbg.compat: smdebug's Rule and what drives it."""

from .compat.rule import Actions, RequiredTensors, RequiredTensorsForTrial, Rule, invoke_rule

__all__ = ["Actions", "RequiredTensors", "RequiredTensorsForTrial", "Rule", "invoke_rule"]
