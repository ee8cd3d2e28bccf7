#!/usr/bin/env python3
"""Fails on an import in python/tdbg that is not one of the arrows between its rooms, on a circle of imports, and on a
private name of another room's.

A room is a line of ROOMS: what it is, its modules (a module that is named for itself belongs to no wider room), and the
rooms that it may import, also inside a function. Which framework's adaptor may know which other is a line each, too, so
that a circle between them is seen.
"""

import argparse
import ast
import pathlib
import sys

# room: (its modules, the rooms that it may import)
ROOMS = {
    # What everybody may say. Nothing here imports numpy or an extension module: a training loads it at its start.
    "words": (["errors", "modes", "words", "places", "program"], []),
    # What a collection is and when it is saved, in smdebug's words. Reading a run answers in them, too.
    "settings": (["compat.exceptions", "exceptions", "hook.collection", "hook.reduction_config", "hook.save_config",
                  "hook.text", "hook.locations"], ["words"]),

    # Loaded into a training.
    "boot": (["boot"], ["adaptors"]),
    "checkpoint": (["checkpoint", "resume"], ["words"]),
    "blackbox": (["blackbox"], []),
    "adaptors": (["adaptors"], ["words", "checkpoint", "blackbox"]),
    "hook": (["hook"], ["words", "settings", "checkpoint", "adaptors"]),

    # What reads.
    "reading": (["reading"], ["words", "settings", "blackbox"]),
    "compat": (["compat"], ["words", "settings", "reading"]),
    "rules": (["rules"], ["words", "settings", "reading", "compat"]),
    # Calls users' handlers of events in a process of their own, and speaks with it as a user's rule does.
    "handlers": (["handlers"], ["words", "rules", "service"]),
    # What `tdbg serve` and `tdbg aws-env` start by path, in whichever Python: the standard library alone.
    "service": (["container", "awsclient"], []),
    # A run, read like anybody does, to experiment trackers.
    "forward": (["forward"], ["words", "reading"]),
    # Reads others' programs, as text, and nothing of ours.
    "migrate": (["migrate"], []),

    # Questions of agents. They go to the program, as anybody's would; nothing is read here.
    "agents": (["agents"], []),

    # Doors: public paths, and what the wheel's program starts. Whoever is inside imports from where a thing is.
    "doors": (["", "__main__", "export", "trial", "tensor", "frame", "plot", "collection", "steps", "rule", "event_files"],
              ["words", "settings", "checkpoint", "adaptors", "reading", "compat", "rules"]),
}

# Imports that break a rule above, each with the reason for which it may stay for now: (importer, imported).
EXCEPTIONS: dict[tuple[str, str], str] = {}

# Private names that another room imports, each with the reason for which it may for now.
PRIVATE: dict[tuple[str, str], str] = {}

# The extension modules. Their names begin with _ since users have tdbg's own; any room may import what it is built on.
EXTENSIONS = {"_capture", "_trial"}


def room_of(module):
    """The room with the longest module that `module` lies in; None: in none."""
    found = [(len(prefix), room) for room, (modules, _) in ROOMS.items() for prefix in modules
             if module == prefix or (prefix and module.startswith(prefix + "."))]
    return max(found)[1] if found else None


def module_of(path, root):
    """Of a file below `root`, its dotted name in the package; "" is the package itself."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports_of(tree, module, is_package, modules):
    """(line, imported module, name or None, executed) of each import of our own package, those inside functions
    included. What only a type checker sees is not executed."""
    for_types = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If)
                 and getattr(node.test, "id", getattr(node.test, "attr", "")) == "TYPE_CHECKING"
                 for statement in node.body for inner in ast.walk(statement)}
    package = module.split(".") if module else []
    if not is_package:
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "tdbg" or alias.name.startswith("tdbg."):
                    yield node.lineno, alias.name.removeprefix("tdbg").removeprefix("."), None, id(node) not in for_types
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[:len(package) - node.level + 1]
                base = [*base, *(node.module.split(".") if node.module else [])]
            elif node.module and node.module.split(".")[0] == "tdbg":
                base = node.module.split(".")[1:]
            else:
                continue
            base = ".".join(base)
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base else alias.name
                found = (inner, None) if inner in modules else (base, alias.name)
                yield node.lineno, *found, id(node) not in for_types


def folder_of(module):
    """What a circle is made of: a framework's adaptor is one thing, a module of its own elsewhere."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "adaptors" else module


def circles(arrows):
    """Sets of nodes that reach each other, of more than one node. `arrows`: node -> nodes."""
    def reach(start):
        seen, todo = set(), list(arrows.get(start, ()))
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo.extend(arrows.get(node, ()))
        return seen

    reached = {node: reach(node) for node in arrows}
    found = []
    for node in sorted(arrows):
        circle = {other for other in reached[node] if node in reached.get(other, ())}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def check(root):
    """All complaints about the package under `root`, as 'path:line: what'."""
    root = pathlib.Path(root)
    files = sorted(root.rglob("*.py"))
    modules = {module_of(path, root) for path in files} | EXTENSIONS
    complaints, arrows, used = [], {}, set()
    for room, (_, may) in ROOMS.items():
        complaints += [f"{pathlib.Path(__file__).name}: {room} may import {other}, which is no room"
                       for other in may if other not in ROOMS]
    if circle := circles({room: may for room, (_, may) in ROOMS.items()}):
        complaints.append(f"{pathlib.Path(__file__).name}: rooms in a circle: {', '.join(sorted(circle[0]))}")
    for path in files:
        module = module_of(path, root)
        room = room_of(module)
        if room is None:
            complaints.append(f"{path}:1: {module} lies in no room")
            continue
        is_package = path.name == "__init__.py"
        for line, imported, name, executed in imports_of(ast.parse(path.read_text()), module, is_package, modules):
            if imported in EXTENSIONS or (name in EXTENSIONS and not imported):
                continue
            key = (folder_of(module), folder_of(imported))
            if key in EXCEPTIONS:
                used.add(key)
                continue
            if (module, f"{imported}.{name}") in PRIVATE:
                used.add((module, f"{imported}.{name}"))
                continue
            target = room_of(imported)
            private = [part for part in (*imported.split("."), name or "") if part.startswith("_") and not part.endswith("__")]
            if target is None:
                complaints.append(f"{path}:{line}: {imported} lies in no room")
            elif target != room and target not in ROOMS[room][1]:
                complaints.append(f"{path}:{line}: {room} may not import {target} ({imported}); "
                                  f"its arrows are {', '.join(ROOMS[room][1]) or 'none'}")
            elif private and (target != room or key[0] != key[1] and room == "adaptors"):
                complaints.append(f"{path}:{line}: {private[0]} of {imported} is private")
            if executed and key[0] != key[1]:
                arrows.setdefault(key[0], set()).add(key[1])
    complaints += [f"imports in a circle: {', '.join(sorted(circle))}" for circle in circles(arrows)]
    complaints += [f"{pathlib.Path(__file__).name}: the exception {a} -> {b} is needed no longer: take it off"
                   for a, b in (*EXCEPTIONS, *PRIVATE) if (a, b) not in used]
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent / "python" / "tdbg")
    complaints = check(parser.parse_args().root)
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
