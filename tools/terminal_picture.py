#!/usr/bin/env python3
"""Runs a command on a terminal of its own and draws what stood there at the end as an SVG.

  tools/terminal_picture.py docs/demo.svg --columns 110 --title 'tdbg run' -- tdbg run ... -- python train.py

Needs pyte (PyPI), which follows what the command does to its terminal.
"""

import argparse
import fcntl
import html
import itertools
import os
import pty
import select
import struct
import termios

import pyte

COLOURS = {"red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef", "magenta": "#c678dd",
           "cyan": "#56b6c2"}  # fmt: skip
PLAIN, DARK = "#dcdfe4", "#1e2127"


def run(command, columns, rows):
    """Everything the command wrote to its terminal."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns))
        os.environ.pop("NO_COLOR", None)
        os.execvp(command[0], command)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    written = b""
    while True:
        select.select([master], [], [])
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        written += chunk
    os.waitpid(pid, 0)
    return written.decode("utf-8", "replace")


def screen(text, columns, rows):
    """Lines of pyte's cells as they stood at the end, without empty ones below."""
    terminal = pyte.Screen(columns, rows)
    pyte.Stream(terminal).feed(text)
    lines = [[terminal.buffer[y][x] for x in range(columns)] for y in range(rows)]
    while lines and not "".join(c.data for c in lines[-1]).strip():
        lines.pop()
    return lines


def svg(lines, columns, title):
    width, height = columns * 8.43 + 32, len(lines) * 18 + 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-size="14" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">',
        f'<rect width="100%" height="100%" rx="8" fill="{DARK}"/><text x="{width / 2:.0f}" y="22" fill="#7f848e" '
        f'text-anchor="middle">{html.escape(title)}</text>',
    ]
    for number, line in enumerate(lines):
        spans = []
        for (colour, bold), cells in itertools.groupby(line, key=lambda c: (COLOURS.get(c.fg, PLAIN), c.bold)):
            weight = ' font-weight="bold"' if bold else ""
            spans.append(f'<tspan fill="{colour}"{weight}>{html.escape("".join(c.data for c in cells))}</tspan>')
        out.append(f'<text x="16" y="{number * 18 + 52}" xml:space="preserve">{"".join(spans)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture")
    parser.add_argument("--columns", type=int, default=110)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--title", default="")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    written = run(arguments.command, arguments.columns, arguments.rows)
    lines = screen(written, arguments.columns, arguments.rows)
    with open(arguments.picture, "w") as file:
        file.write(svg(lines, arguments.columns, arguments.title or " ".join(arguments.command)))


if __name__ == "__main__":
    main()
