#!/usr/bin/env python3
"""The committed page (ui/dist) is made of its sources, and is small.

Compares hashes, which needs nothing. Where ui/node_modules lies it builds the page again and compares the bytes, and with
--rebuild it must.
"""

import argparse
import pathlib
import sys
import tempfile

import build_page


def complaints(rebuild: bool) -> list[str]:
    missing = [name for name in build_page.FILES if not (build_page.UI / "dist" / name).exists()]
    if missing or not build_page.NOTE.exists():
        return [f"ui/dist lacks {', '.join(missing) or 'sources.txt'}; run tools/build_page.py"]
    found = []
    if build_page.NOTE.read_text() != build_page.note():
        found.append("ui/dist was not made of these sources; run tools/build_page.py")
    elif rebuild:
        with tempfile.TemporaryDirectory() as fresh:
            build_page.build(pathlib.Path(fresh))
            found += [f"ui/dist/{name} is not what the sources give; run tools/build_page.py" for name in build_page.FILES
                      if (pathlib.Path(fresh) / name).read_bytes() != (build_page.UI / "dist" / name).read_bytes()]
    if (size := build_page.compressed()) > build_page.MOST_COMPRESSED:
        found.append(f"ui/dist is {size} bytes compressed, more than {build_page.MOST_COMPRESSED}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rebuild", action="store_true", help="build, whether or not ui/node_modules is there")
    arguments = parser.parse_args()
    found = complaints(arguments.rebuild or (build_page.UI / "node_modules").exists())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
