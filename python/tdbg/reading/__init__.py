"""What reads a run: `tdbg.open`, and the objects that it leads to. Loads `_trial`, never the capturing side."""
