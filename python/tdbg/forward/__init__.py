"""What a run holds, sent to experiment trackers by their own libraries: `tdbg forward` (docs/monitoring.md)."""
