"""What every Python of a job runs at its start, one of 2.7 as well. What it does in a Python that trains: torch/test_processes.py."""

import ast
import pathlib
import shutil
import subprocess
import sys

import pytest

BOOT = pathlib.Path(__file__).resolve().parents[2] / "python" / "tdbg" / "boot"
SOURCE = BOOT / "sitecustomize.py"

#: What ast has for syntax that came after 2.7.
LATER = tuple(getattr(ast, name) for name in (
    "JoinedStr", "AnnAssign", "Nonlocal", "NamedExpr", "YieldFrom", "MatMult", "Match", "TryStar",
    "AsyncFunctionDef", "AsyncFor", "AsyncWith", "Await") if hasattr(ast, name))


def later_syntax(source):
    """Lines at which 2.7 would stop, with what is there."""
    found = []
    for node in ast.walk(ast.parse(source, feature_version=(3, 4))):
        later = isinstance(node, LATER)
        if isinstance(node, ast.arguments):
            later = node.kwonlyargs or node.posonlyargs
        elif isinstance(node, ast.arg):
            later = node.annotation
        elif isinstance(node, ast.FunctionDef):
            later = node.returns
        elif isinstance(node, ast.ClassDef):
            later = node.keywords
        elif isinstance(node, ast.Raise):
            later = node.cause
        elif isinstance(node, (ast.Tuple, ast.List)):
            later = any(isinstance(element, ast.Starred) for element in node.elts)
        elif isinstance(node, ast.Call):
            later = sum(isinstance(argument, ast.Starred) for argument in node.args) > 1
        elif isinstance(node, ast.Dict):
            later = None in node.keys
        if later:
            found.append((getattr(node, "lineno", 0), type(node).__name__))
    return found


def test_it_waits_for_every_framework_that_has_an_adaptor():
    from tdbg.adaptors import FRAMEWORKS
    said = next(ast.literal_eval(node.value) for node in ast.parse(SOURCE.read_text()).body
                if isinstance(node, ast.Assign) and node.targets[0].id == "_FRAMEWORKS")
    assert sorted(said) == sorted(FRAMEWORKS)


def test_its_syntax_is_also_that_of_2_7():
    assert SOURCE.read_text().isascii(), "2.7 wants an encoding named before it reads anything else"
    assert later_syntax(SOURCE.read_text()) == []


@pytest.mark.parametrize("line", ["f'{x}'", "x: int = 0", "def f(*, a): pass", "def f(a: int): pass", "def f() -> int: pass",
                                  "class C(metaclass=M): pass", "raise A from b", "(x := 1)", "a, *b = c", "{**a}", "f(*a, *b)"])
def test_later_syntax_would_be_found(line):
    try:
        assert later_syntax(line)
    except SyntaxError:
        pass        # said by ast itself, of 3.4


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="imp, by which 2.7 finds modules, is gone")
def test_in_an_old_python_it_only_makes_way(tmp_path):
    """By the branch for old Pythons, in this one: what it shadows is run, nothing is said and nothing watches imports."""
    shutil.copy(SOURCE, tmp_path)
    (tmp_path / "other").mkdir()
    program = ("import sys; before = list(sys.meta_path); sys.version_info = (2, 7, 18, 'final', 0)\n"
               "import sitecustomize; assert sys.meta_path == before; print(getattr(sys, 'marked', None))")

    def run():
        environment = {"PYTHONPATH": f"{tmp_path}:{tmp_path / 'other'}", "TDBG_RUN": "/nowhere", "TDBG_HOME": "/nowhere",
                       "USE_SMDEBUG": "0"}
        return subprocess.run([sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True)

    done = run()
    assert (done.stdout, done.stderr) == ("None\n", "")
    (tmp_path / "other" / "sitecustomize.py").write_text("import sys; sys.marked = __file__\n")
    done = run()
    assert (done.stdout, done.stderr) == (f"{tmp_path / 'other' / 'sitecustomize.py'}\n", "")
