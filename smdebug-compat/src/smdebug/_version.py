from . import __version__
