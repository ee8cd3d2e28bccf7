"""Questions about runs for programs that reason: `tdbg mcp`."""
