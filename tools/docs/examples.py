"""Examples in docstrings (`>>> ...`) are code blocks of the pages: to Markdown they would be quotations.

An extension of griffe, which reads the package for mkdocstrings.
"""

import re

import griffe

# From a prompt to the next blank line, indented alike.
EXAMPLE = re.compile(r"^([ \t]*)(>>> .*(?:\n(?![ \t]*$).*)*)", re.MULTILINE)


def fenced(text):
    return EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)


class Examples(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
