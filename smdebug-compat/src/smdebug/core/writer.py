from tdbg.event_files import FileWriter
