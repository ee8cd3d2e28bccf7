from . import Hook
