"""What `tdbg run` keeps beside what a hook says: its rules' needs, a configuration's collections."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("smdebug")


def base_plan(run: str | None) -> str:
    """The launcher's plan.json; "" where there is none.

    :param run: the launcher's run directory; None: the script was started without it. What $TDBG_CONFIG says is then
        used by nobody, its rules too, which is said.
    """
    if run is None:
        if os.environ.get("TDBG_CONFIG"):
            logger.warning(
                "$TDBG_CONFIG is not used: a hook saves what it says itself, and nothing judges by rules or on_issue. "
                "Start the script with: tdbg run -- python SCRIPT"
            )
        return ""
    try:
        with open(os.path.join(run, "plan.json"), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
