"""The fixtures of program.py. Not defined here: another folder's conftest would be imported in its place."""

from program import *  # noqa: F401,F403
