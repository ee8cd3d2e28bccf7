"""smdebug's names for what reads: its exceptions, `create_trial`, `Rule`, its files one at a time.

tdbg.reading knows nothing of them. smdebug's hooks are in tdbg.hook; its import names in the distribution tdbg-smdebug.
"""
