"""Adaptors: one folder per framework. `arm` is the launcher's way in, `attach` the script's."""

import importlib

FRAMEWORKS = ("torch", "xgboost", "lightgbm", "keras", "tensorflow", "mxnet")     # those with a folder here


def arm(framework):
    """Called when `framework` has just been imported under `tdbg run`. Unknown ones are left alone."""
    if framework in FRAMEWORKS:
        importlib.import_module(f"{__name__}.{framework}").arm()


def attach(model=None, config=None, dir=None, framework="torch", **options):
    """Records the training of `model`; see attach of tdbg.adaptors.torch, or of the framework named."""
    if framework not in FRAMEWORKS:
        raise ValueError(f"no adaptor for {framework!r}; there are: {', '.join(FRAMEWORKS)}")
    module = importlib.import_module(f"{__name__}.{framework}")
    return module.attach(model=model, config=config, dir=dir, **options)
