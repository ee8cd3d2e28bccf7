#!/usr/bin/env python3
"""Fails on an #include that is not one of the arrows between rooms, and on a name of a room that is none.

The arrows are the tdbg_room(... DEPS ...) lines of CMakeLists.txt, so there is one list and not two. Linking
alone would not notice: a header-only use of a forbidden room links, and a static library is found through
somebody else's dependency. Nor would the includes: a header of an allowed room brings those of its own arrows
along, and a room that says `store::` knows how things are stored, whoever included it.
"""

import argparse
import pathlib
import re
import sys

ROOM = re.compile(r"^\s*tdbg_room\(\s*(\S+)\s+DEPS\b([^)]*)\)", re.MULTILINE)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
SOURCES = {".h", ".cc", ".inc", ".cu", ".cuh"}

# What may be heavy, or clash with a copy inside a framework, stays in the rooms that need it: everything else is
# loaded into somebody's training process. CLI11 takes a compiler four seconds, so one file alone has it.
THIRD_PARTY = {
    "CLI/": {"cli/flags.cc"},
    "yaml-cpp/": {"cli"},
    "curl/": {"actions", "cli", "storage"},
    "openssl/": {"service", "storage"},
    "expat.h": {"storage"},
    "hwy/": {"stats"},
    "pcre2.h": {"base"},
    "xxhash.h": {"base"},
    "protozero/": {"tfevents"},
    "boost/": {"http"},
    "simdjson.h": {"compat/smdebug/reader"},
    "torch/": set(),
}


# What the reading side is tested with is written by the writing side (cmake/rooms.cmake links it to these tests
# only); the rooms themselves meet in format/.
TEST_ONLY = {
    "store/reader": {"store/writer"},
    "store/compactor": {"store/writer"},
    "trial": {"store/writer"},
    "rules": {"format", "store/writer", "store/reader"},
    "query": {"plan", "store/writer", "store/reader", "store/compactor"},
}


def is_test(path):
    return path.name == "testing.h" or path.name.endswith("_test.cc")


def read_rooms(cmake_text):
    """{room: set of rooms it may include}, from the text of CMakeLists.txt."""
    without_comments = re.sub(r"#.*", "", cmake_text)
    return {name: set(deps.split()) for name, deps in ROOM.findall(without_comments)}


def room_of(path, rooms):
    """The room a path relative to src/ lies in: the longest one, as store/reader is no part of a room store."""
    found = [room for room in rooms if path.startswith(room + "/")]
    return max(found, key=len) if found else None


def includes_of(text):
    """(line number, '<' or '"', what) of each #include."""
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def namespaces_of(rooms):
    """{namespace: rooms whose names are in it}: `store` is both of store/writer and of store/reader."""
    found = {}
    for room in rooms:
        found.setdefault("::".join(room.split("/")[:-1]) or room, set()).add(room)
    return found


def names_of(text, namespaces):
    """(line number, namespace) of each name of one of these namespaces; what is between quotation marks is none."""
    pattern = re.compile(rf"(?<![\w:])(?:tdbg::)?({'|'.join(sorted(namespaces, key=len, reverse=True))})::")
    for number, line in enumerate(text.splitlines(), 1):
        for namespace in sorted(set(pattern.findall(STRING.sub('""', line)))):
            yield number, namespace


def complaint_in_room(file, room, kind, what, rooms):
    for prefix, allowed in THIRD_PARTY.items():
        if what.startswith(prefix):
            return None if {file, room} & allowed else f"{what} belongs to {', '.join(sorted(allowed)) or 'no room'}"
    if what.startswith("tdbg/"):
        return None
    target = room_of(what, rooms)
    if target is None:
        return f'"{what}" is neither a public header nor in a room; write the path from src/' if kind == '"' else None
    if target == room or target in rooms[room]:
        return None
    return f"{room} may not include {target} ({what}); its arrows are {', '.join(sorted(rooms[room])) or 'none'}"


def complaint_in_public_header(kind, what):
    if kind == '"':
        return None if what.startswith("tdbg/") else f'"{what}" is no public header'
    # Standard C++ headers have no dot and no slash; everything else is POSIX or a third party.
    return f"<{what}> is not of the C++ standard library" if re.search(r"[./]", what) else None


def complaint_outside(path, kind, what):
    """In examples/: users have the public headers and what lies beside the file, nothing else of ours."""
    if kind == "<" or what.startswith("tdbg/") or (path.parent / what).exists():
        return None
    return f'"{what}" is nothing a user can include'


def check(root):
    """All complaints about the tree under `root`, as 'path:line: what'."""
    root = pathlib.Path(root)
    rooms = read_rooms((root / "CMakeLists.txt").read_text())
    namespaces = namespaces_of(rooms)
    complaints = []

    def walk(folder):
        base = root / folder
        return sorted(p for p in base.rglob("*") if p.suffix in SOURCES) if base.exists() else []

    def complain(path, number, what):
        complaints.append(f"{path.relative_to(root)}:{number}: {what}")

    if not rooms:
        complaints.append("CMakeLists.txt:1: no tdbg_room(name DEPS ...) found")
    for room, deps in rooms.items():
        for unknown in sorted(deps - rooms.keys()):
            complaints.append(f"CMakeLists.txt:1: {room} depends on {unknown}, which is no room")
    for path in walk("src"):
        file = path.relative_to(root / "src").as_posix()
        room = room_of(file, rooms)
        if room is None:
            complain(path, 1, "lies in no room of CMakeLists.txt")
            continue
        own = rooms
        if is_test(path) and room in TEST_ONLY:
            own = {**rooms, room: rooms[room] | TEST_ONLY[room]}
        text = path.read_text()
        for number, kind, what in includes_of(text):
            why = complaint_in_room(file, room, kind, what, own)
            if why:
                complain(path, number, why)
        for number, namespace in names_of(text, namespaces):
            if not namespaces[namespace] & (own[room] | {room}):
                complain(path, number, f"{room} may not name {namespace}::; its arrows are {', '.join(sorted(own[room]))}")
    for path in walk("include"):
        for number, kind, what in includes_of(path.read_text()):
            why = complaint_in_public_header(kind, what)
            if why:
                complain(path, number, why)
    for path in walk("examples"):
        for number, kind, what in includes_of(path.read_text()):
            why = complaint_outside(path, kind, what)
            if why:
                complain(path, number, why)
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent)
    complaints = check(parser.parse_args().root)
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
