from tdbg.event_files import FileReader
