from tdbg.hook.text import parse_bool, parse_list_from_str
from tdbg.reading.refreshing import no_refresh, refresh
