"""The process in which a handler of events runs; docs/events.md says how to write and register one."""
