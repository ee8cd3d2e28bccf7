#!/usr/bin/env python3
"""Gathers the pages of the documentation into one folder: `stage.py FOLDER --cpp|--no-cpp`.

Every Markdown file that git tracks keeps its place, so links between them stay as they are. What they link to and is no page is
put beside them; a link to a folder leads to its README. Three pages are made: the Python names, the C++ headers, the rules.
The order of the pages is that of docs/README.md; with it tools/docs/mkdocs.yml is FOLDER/../mkdocs.yml.
"""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# [FLAG] [FLAG] and u64[12][4] are no references, but in code they stay as they are.
REFERENCE = re.compile(r"(`[^`\n]*`)|\](\s?)\[")
RULES = "src/rules/builtin"
INDEX = "docs/README.md"
LISTED = re.compile(r"^\| \[([^\]]+)\]\(([^)#\s]+)\) \|", re.MULTILINE)
# Pages that are made, at the end of a section of the index.
MADE = {"Use it": {"Rules": "rules.md"}, "Understand it": {"Python": "python.md", "C++": "cpp.md"}}


def rewritten(name, text, files):
    """The page's text with links that lead to pages and files of the site, and the files that it needs.

    :param files: all files that there are, by their paths from the root
    """
    needed = set()
    folders = {str(parent) for file in files for parent in pathlib.PurePath(file).parents}

    def replace(link):
        image, words, target, anchor = link.groups()
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if path in folders:
            readme = f"{path}/README.md"
            # A folder that says nothing of itself is no page.
            return f"{image}[{words}]({target.rstrip('/')}/README.md{anchor or ''})" if readme in files else words
        if path in files and not path.endswith(".md"):
            needed.add(path)
        return link[0]

    def prose(part):
        return REFERENCE.sub(lambda found: found[1] or f"]{found[2]}\\[", LINK.sub(replace, part))

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [prose(text[end:fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, prose(text[end:])]), needed


def python_names():
    """[(name in tdbg, where it is defined)] of the package's lazily imported names."""
    tree = ast.parse((ROOT / "python/tdbg/__init__.py").read_text())
    where = next(ast.literal_eval(node.value) for node in ast.walk(tree)
                 if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_WHERE")
    return [(name, "tdbg" + module) for name, module in where.items() if not name.startswith("_")]


def python_page():
    names = dict(python_names())
    sections = {
        "Read a run": ["open", "create_trial", "refresh", "no_refresh", "Trial", "Tensor", "Cursor", "StepState", "ModeKeys"],
        "In a training": ["attach", "step", "resume_step", "on_checkpoint"],
        "Rules of your own": ["Rule", "Finding", "needs", "parameter"],
        "Errors": ["TdbgError"],
    }
    missing = set(names) - {name for section in sections.values() for name in section}
    if missing:
        sys.exit(f"docs: names of tdbg that stand in no section of {__file__}: {', '.join(sorted(missing))}")
    lines = ["# Python", "", "What `import tdbg` offers; nothing is loaded before it is asked for.", ""]
    for title, section in sections.items():
        lines += [f"## {title}", ""]
        for name in section:
            lines += [f"::: {names[name]}.{name}", ""]
    for title, module in (("What attach returns", "tdbg.adaptors.attached"),
                          ("Statistics and histograms", "tdbg.reading.summary"), ("Frames", "tdbg.reading.frame"),
                          ("Plots", "tdbg.reading.plot"), ("All errors", "tdbg.errors"),
                          ("smdebug's exceptions", "tdbg.compat.exceptions"), ("Testing a rule", "tdbg.rules.testing")):
        lines += [f"## {title}", "", f"::: {module}", "    options:", "      show_root_heading: false", ""]
    return "\n".join(lines)


def rules_page():
    lines = ["# Rules", "", "What each built-in rule sees. `tdbg rules show NAME` prints its page.", "", "| rule | sees |", "|---|---|"]
    for page in sorted((ROOT / RULES).glob("*/README.md")):
        sees = re.search(r"\*\*Sees\*\*,? ((?:.+\n)+)", page.read_text())
        lines.append(f"| [{page.parent.name}]({RULES}/{page.parent.name}/README.md) | {' '.join(sees[1].split()) if sees else ''} |")
    return "\n".join(lines) + "\n"


def cpp_page(made):
    if not made:
        return "# C++\n\nThis was built where doxygen is not installed: the headers of `include/tdbg` say it themselves.\n"
    headers = sorted(path.name for path in (ROOT / "include/tdbg").glob("*.h"))
    return ("# C++\n\nThe headers of `include/tdbg`: `run.h` to capture, `trial.h` to ask, `rule.h` for a rule of your own.\n\n"
            "[Reference](cpp/index.html), by file:\n\n"
            + "".join(f"- [`tdbg/{name}`](cpp/{name.replace('_', '__').replace('.', '_8')}.html)\n" for name in headers))


def navigation(index):
    """What mkdocs calls `nav`, of the text of docs/README.md: its sections and the pages that they list."""
    nav = [{"tdbg": "README.md"}, {"All documents": INDEX}]
    for section in index.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        pages = {words: os.path.normpath(os.path.join(os.path.dirname(INDEX), target)) for words, target in LISTED.findall(section)}
        nav.append({title: [{words: target} for words, target in (pages | MADE.get(title, {})).items()]})
    return nav


def configuration(index):
    """Of mkdocs, beside the folder of pages. JSON is YAML."""
    return json.dumps({"INHERIT": "../../tools/docs/mkdocs.yml", "nav": navigation(index)}, indent=1)


def main():
    target, cpp = pathlib.Path(sys.argv[1]), sys.argv[2] == "--cpp"
    files = set(subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.splitlines())
    pages = {name: (ROOT / name).read_text() for name in files if name.endswith(".md") and not name.startswith(".")}
    needed = set()
    for name, text in pages.items():
        pages[name], more = rewritten(name, text, files)
        needed |= more
    pages |= {"python.md": python_page(), "rules.md": rules_page(), "cpp.md": cpp_page(cpp)}
    for name, text in pages.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    (target.parent / "mkdocs.yml").write_text(configuration((ROOT / INDEX).read_text()))
    for name in needed:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target / name)


if __name__ == "__main__":
    main()
