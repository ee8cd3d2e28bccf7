"""What of programs for smdebug and sagemaker.debugger runs here: `tdbg migrate` (docs/migrating-from-smdebug.md)."""
