"""Reads one program's syntax tree: which of its lines use smdebug or the SageMaker SDK, and which jobs it would start.

Statements are gone through in their order, with what each name then stands for, so that a notebook that says
`hook_config = ...` twice starts two different jobs. What branches disagree on is unknown. Calls of the program's own
functions are not followed.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from tdbg.migrate import names
from tdbg.migrate.sources import Piece, without_magics
from tdbg.migrate.values import Call, Member, Name, Unknown, is_known

PROBLEM = "problem"  # a verdict: the lines could not be read
_ESTIMATORS = ("PyTorch", "TensorFlow", "MXNet", "XGBoost", "HuggingFace", "SKLearn", "Estimator")
_HOOK_MAKERS = ("Hook", "KerasHook", "SessionHook", "EstimatorHook", "CallbackHook", "BaseHook", "get_hook",
                "create_from_json_file", "hook_from_config", "create_hook_from_json_config")
_TRIAL_MAKERS = ("create_trial", "Trial", "LocalTrial", "S3Trial")
# What a function's parameters of these names are, in a program that imports smdebug.
_PARAMETERS = {"hook": "smdebug.Hook", "smd_hook": "smdebug.Hook", "trial": "smdebug.create_trial",
               "base_trial": "smdebug.create_trial"}
_PYTHON_2 = re.compile(r"^[ \t]*(print\s+[\"'\w]|exec\s+[\"'\w]|raise\s+\w+\s*,|except\s+[\w.]+\s*,\s*\w+\s*:)",
                       re.MULTILINE)
_INSTALLS = re.compile(r"\bpip3?\s+install\b.*\b(smdebug|sagemaker-debugger)\b")
_CONTAINER = "/opt/ml"
# A program could double a text in each of its lines; what is larger than this is not followed.
_LARGEST, _LARGEST_BITS = 10000, 1000


@dataclass(frozen=True)
class Finding:
    line: int
    cell: int  # of a notebook, from 1; 0: none
    verdict: str
    name: str
    why: str


@dataclass
class Program:
    """What a scan found."""

    findings: list[Finding] = field(default_factory=list)
    jobs: list[Call] = field(default_factory=list)  # of estimators, and of create_training_job
    fits: dict[int, Call] = field(default_factory=dict)  # id of a job's Call -> the call of its fit


class Env:
    """What names stand for: those of a branch or a function over those around it, at the cost of what it says."""

    def __init__(self, outer: Env | None = None) -> None:
        self.own: dict[str, Any] = {}
        self._outer = outer

    def get(self, name: str, default: Any = None) -> Any:
        env: Env | None = self
        while env is not None:
            if name in env.own:
                return env.own[name]
            env = env._outer
        return default

    def __contains__(self, name: str) -> bool:
        return self.get(name, _MISSING) is not _MISSING

    def __setitem__(self, name: str, value: Any) -> None:
        self.own[name] = value


_MISSING = object()


def scan(pieces: list[Piece]) -> Program:
    program = Program()
    scanner = _Scanner(program)
    for piece in pieces:
        scanner.piece(piece)
    program.findings = sorted(set(program.findings), key=lambda f: (f.cell, f.line, f.name))
    return program


class _Scanner:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._env = Env()
        self._cell = 0
        self._has_smdebug = False

    # What is found ---------------------------------------------------------------------------------------------

    def _find(self, line: int, verdict: str, name: str, why: str) -> None:
        self._program.findings.append(Finding(line, self._cell, verdict, name, why))

    def _judge(self, line: int, name: str, verdict: names.Verdict | None) -> None:
        if verdict is not None:
            self._find(line, verdict.verdict, name, verdict.why)

    def _use(self, line: int, dotted: str) -> None:
        """A name of a package that we know was mentioned."""
        package, _, rest = dotted.partition(".")
        last = dotted.rsplit(".", 1)[-1]
        if package == "sagemaker" and rest:
            two = ".".join(dotted.split(".")[-2:])
            self._judge(line, dotted, names.of_job(two) or names.of_job(last))
        elif package == "smdebug_rulesconfig":
            self._judge(line, dotted, names.of_job("rule_configs"))
        elif package == "smdebug":
            self._judge(line, dotted, _of_smdebug(dotted))

    # Pieces ----------------------------------------------------------------------------------------------------

    def piece(self, piece: Piece) -> None:
        self._cell = piece.cell
        tree = self._parsed(piece)
        if tree is None:
            return
        try:
            self._block(tree.body, self._env)
        except RecursionError:
            self._find(1, PROBLEM, "", "nested too deeply to be read")

    def _parsed(self, piece: Piece) -> ast.Module | None:
        text = piece.text
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    return ast.parse(text)
                except SyntaxError:
                    if not piece.cell:
                        raise
                    text, shell = without_magics(text)
                    for line, command in shell:
                        if _INSTALLS.search(command):
                            self._find(line, names.BECOMES, "pip install smdebug", "`pip install tdbg tdbg-smdebug`")
                    return ast.parse(text)
        except SyntaxError as error:
            where = error.lineno or 1
            if found := _PYTHON_2.search(text):
                line = text.count("\n", 0, found.start(1)) + 1
                why = "Python 2; what it starts has to be Python 3 first (2to3 converts it)"
                self._find(line, PROBLEM, text.split("\n")[line - 1].strip()[:60], why)
            else:
                self._find(where, PROBLEM, "", f"not read: {error.msg}")
        except (ValueError, RecursionError, MemoryError) as error:
            self._find(1, PROBLEM, "", f"not read: {error or 'nested too deeply'}")
        return None

    # Statements ------------------------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt], env: Env) -> None:
        for statement in statements:
            self._statement(statement, env)

    def _statement(self, node: ast.stmt, env: Env) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._imported(node.lineno, alias.name)
                shown = alias.asname or alias.name.split(".")[0]
                env[shown] = Name(alias.name if alias.asname else shown)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                if node.level or not node.module:
                    env[alias.asname or alias.name] = Unknown(alias.name)
                elif alias.name == "*":
                    self._imported(node.lineno, node.module)
                    for shown in names.all_names() if node.module.split(".")[0] in ("smdebug", "sagemaker") else ():
                        if shown not in env:
                            env[shown] = Name(f"{node.module}.{shown}")
                else:
                    self._imported(node.lineno, dotted)
                    env[alias.asname or alias.name] = Name(dotted)
        elif isinstance(node, ast.Assign):
            value = self._value(node.value, env)
            for target in node.targets:
                self._bind(target, value, env)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._bind(node.target, self._value(node.value, env), env)
        elif isinstance(node, ast.AugAssign):
            self._value(node.value, env)
            self._bind(node.target, Unknown(_text(node.target)), env)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(node, env)
        elif isinstance(node, ast.ClassDef):
            for base in (*node.bases, *node.decorator_list, *(k.value for k in node.keywords)):
                self._value(base, env)
            self._block(node.body, Env(env))
            env[node.name] = Unknown(node.name)
        elif isinstance(node, ast.If):
            self._value(node.test, env)
            self._branches([node.body, node.orelse], env)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._value(node.iter, env)
            inside = Env(env)
            self._bind(node.target, Unknown(_text(node.target)), inside)
            self._block(node.body, inside)
            _merge(env, [Env(env), inside])
            self._block(node.orelse, env)
        elif isinstance(node, ast.While):
            self._value(node.test, env)
            self._branches([node.body, []], env)
            self._block(node.orelse, env)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                value = self._value(item.context_expr, env)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, value, env)
            self._block(node.body, env)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            self._block(node.body, env)  # type: ignore[attr-defined]
            handlers: list[ast.ExceptHandler] = node.handlers  # type: ignore[attr-defined]
            self._branches([[], *(handler.body for handler in handlers)], env)
            self._block(node.orelse, env)  # type: ignore[attr-defined]
            self._block(node.finalbody, env)  # type: ignore[attr-defined]
        elif type(node).__name__ == "Match":
            self._value(node.subject, env)  # type: ignore[attr-defined]
            self._branches([[], *(case.body for case in node.cases)], env)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    env[target.id] = Unknown(target.id)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._value(child, env)

    def _imported(self, line: int, dotted: str) -> None:
        if dotted.split(".")[0] == "smdebug":
            self._has_smdebug = True
        self._use(line, dotted)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, env: Env) -> None:
        arguments = node.args
        for default in (*node.decorator_list, *arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._value(default, env)
        inside = Env(env)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        for one in every:
            known = _PARAMETERS.get(one.arg) if self._has_smdebug else None
            inside[one.arg] = Call(Name(known), line=node.lineno) if known else Unknown(one.arg)
        self._block(node.body, inside)
        env[node.name] = Unknown(node.name)

    def _branches(self, blocks: list[list[ast.stmt]], env: Env) -> None:
        ends = []
        for block in blocks:
            inside = Env(env)
            self._block(block, inside)
            ends.append(inside)
        _merge(env, ends)

    def _bind(self, target: ast.expr, value: Any, env: Env) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = Unknown(target.id) if isinstance(value, Unknown) else value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value if isinstance(value, (list, tuple)) and len(value) == len(target.elts) else None
            for number, one in enumerate(target.elts):
                self._bind(one, parts[number] if parts is not None else Unknown(_text(one)), env)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, Unknown(_text(target.value)), env)
        elif isinstance(target, ast.Subscript):
            container, key = self._value(target.value, env), self._value(target.slice, env)
            if isinstance(target.value, ast.Name):
                known = isinstance(container, dict) and isinstance(key, (str, int)) and len(container) < _LARGEST // 10
                # A new dictionary: what was said with the old one stays said.
                env[target.value.id] = {**container, key: value} if known else Unknown(target.value.id)
        elif isinstance(target, ast.Attribute):
            self._value(target.value, env)

    # Expressions -----------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr, env: Env) -> Any:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value.startswith(_CONTAINER):
                self._find(node.lineno, names.BECOMES, repr(node.value[:60]),
                           "a path of SageMaker's container; take it from `SM_MODEL_DIR`, `SM_CHANNEL_<NAME>`, "
                           "`TDBG_CHECKPOINT_DIR` or an argument")
            plain = node.value is None or isinstance(node.value, (bool, int, float, str))
            return node.value if plain and _moderate(node.value) else Unknown(_text(node))
        if isinstance(node, ast.Name):
            return env.get(node.id, Unknown(node.id))
        if isinstance(node, ast.Attribute):
            return self._attribute(node, env)
        if isinstance(node, ast.Call):
            return self._call(node, env)
        if isinstance(node, ast.Dict):
            return self._dict(node, env)
        if isinstance(node, (ast.List, ast.Tuple)):
            parts = [self._value(one, env) for one in node.elts]
            if any(isinstance(one, ast.Starred) for one in node.elts):
                return Unknown(_text(node))
            return parts if isinstance(node, ast.List) else tuple(parts)
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, env)
        if isinstance(node, ast.BinOp):
            return _binary(node, self._value(node.left, env), self._value(node.right, env))
        if isinstance(node, ast.UnaryOp):
            inner = self._value(node.operand, env)
            if isinstance(node.op, ast.USub) and isinstance(inner, (int, float)):
                return -inner
            if isinstance(node.op, ast.Not) and isinstance(inner, bool):
                return not inner
            return Unknown(_text(node))
        if isinstance(node, ast.Subscript):
            container, key = self._value(node.value, env), self._value(node.slice, env)
            if isinstance(container, dict) and isinstance(key, (str, int)) and key in container:
                return container[key]
            if isinstance(container, (list, tuple)) and isinstance(key, int):
                return container[key] if -len(container) <= key < len(container) else Unknown(_text(node))
            return Unknown(_text(node))
        if isinstance(node, ast.NamedExpr):
            value = self._value(node.value, env)
            self._bind(node.target, value, env)
            return value
        if isinstance(node, ast.Lambda):
            inside = Env(env)
            for one in node.args.args:
                inside[one.arg] = Unknown(one.arg)
            self._value(node.body, inside)
            return Unknown(_text(node))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            inside = Env(env)
            for generator in node.generators:
                self._value(generator.iter, inside)
                self._bind(generator.target, Unknown(_text(generator.target)), inside)
                for test in generator.ifs:
                    self._value(test, inside)
            for part in ([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]):
                self._value(part, inside)
            return Unknown(_text(node))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child, env)
        return Unknown(_text(node))

    def _dict(self, node: ast.Dict, env: Env) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            known = self._value(value, env)
            if key is None:
                if not isinstance(known, dict):
                    return Unknown(_text(node))
                found.update(known)
                continue
            name = self._value(key, env)
            if not (name is None or isinstance(name, (str, int, float))):
                return Unknown(_text(node))
            found[name] = known
        return found

    def _joined(self, node: ast.JoinedStr, env: Env) -> Any:
        parts = []
        for one in node.values:
            if isinstance(one, ast.FormattedValue):
                value = self._value(one.value, env)
                if one.format_spec is not None or one.conversion != -1 or not isinstance(value, (str, int)):
                    return Unknown(_text(node))
                parts.append(str(value))
            elif isinstance(one, ast.Constant):
                parts.append(str(one.value))
        return "".join(parts) if sum(map(len, parts)) <= _LARGEST else Unknown(_text(node))

    def _attribute(self, node: ast.Attribute, env: Env) -> Any:
        base = self._value(node.value, env)
        if isinstance(base, Name):
            found = Name(f"{base.dotted}.{node.attr}")
            self._use(node.end_lineno or node.lineno, found.dotted)
            return found
        if isinstance(base, (Call, Member)):
            of = base.of if isinstance(base, Member) else base
            self._member(node.end_lineno or node.lineno, of, node.attr)
            return Member(of, node.attr)
        if self._has_smdebug and node.attr == "base_trial":
            return Call(Name("smdebug.create_trial"))
        return Unknown(_text(node))

    def _member(self, line: int, of: Call, attribute: str) -> None:
        """An attribute of something whose maker is known."""
        package, *_ = of.name.dotted.split(".")
        if package == "smdebug":
            parts = of.name.dotted.split(".")
            if of.name.last in _HOOK_MAKERS:
                verdict = names.of_hook(attribute, parts[1] if len(parts) > 2 else "")
                self._judge(line, f"hook.{attribute}", verdict)
            elif of.name.last in (*_TRIAL_MAKERS, "tensor"):
                what = "tensor" if of.name.last == "tensor" else "trial"
                self._judge(line, f"{what}.{attribute}", names.of_trial(attribute))
        elif package in ("sagemaker", "boto3"):
            self._judge(line, attribute, names.of_job(attribute))

    def _call(self, node: ast.Call, env: Env) -> Any:
        called = self._value(node.func, env)
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}
        complete = True
        for one in node.args:
            value = self._value(one.value if isinstance(one, ast.Starred) else one, env)
            if isinstance(one, ast.Starred):
                complete = False
            else:
                arguments.append(value)
        for keyword in node.keywords:
            value = self._value(keyword.value, env)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                keywords.update(value)
            else:
                complete = False
        line = node.lineno
        if isinstance(called, Name):
            call = Call(called, arguments, keywords, complete, line, self._cell)
            package = called.dotted.split(".")[0]
            if isinstance(node.func, ast.Name):
                self._use(line, called.dotted)
            if package == "sagemaker" and called.last in _ESTIMATORS:
                self._program.jobs.append(call)
                for keyword in node.keywords:
                    if keyword.arg in _OPTIONS:
                        self._judge(keyword.value.lineno, keyword.arg or "", names.of_job(keyword.arg or ""))
            return call
        if isinstance(called, Member):
            name = Name(f"{called.of.name.dotted}.{called.name}")
            return self._method(called, Call(name, arguments, keywords, complete, line, self._cell))
        if isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id) and node.func.id not in env:
            return _builtin(node, node.func.id, arguments, keywords)
        return Unknown(_text(node))

    def _method(self, member: Member, call: Call) -> Any:
        of = member.of
        if of.name.dotted.startswith("sagemaker.") and member.name == "fit" and of.name.last in _ESTIMATORS:
            self._program.fits.setdefault(id(of), call)
        elif member.name == "set_hyperparameters" and of.name.last in _ESTIMATORS:
            before = of.keywords.get("hyperparameters") or {}
            of.keywords["hyperparameters"] = {**before, **call.keywords} if isinstance(before, dict) else before
        elif of.name.dotted.startswith("boto3.") and member.name == "create_training_job":
            self._program.jobs.append(call)
        elif of.name.last in _TRIAL_MAKERS and member.name == "tensor":
            return Call(Name("smdebug.tensor"))
        return call


# Keywords of an estimator that have a row of their own.
_OPTIONS = ("use_spot_instances", "train_use_spot_instances", "checkpoint_s3_uri", "checkpoint_local_path", "max_run",
            "train_max_run", "max_wait", "train_max_wait", "distribution", "distributions")


def _of_smdebug(dotted: str) -> names.Verdict | None:
    """Of a module or a name in one; None: an attribute of something, of which the thing itself says enough."""
    for module in _prefixes(dotted):
        if verdict := names.of_module(module):
            return verdict
    if names.is_module(dotted):
        return names.Verdict(names.SAME, "")
    module, _, last = dotted.rpartition(".")
    if names.is_module(module):
        return names.of_name(last) or names.Verdict(names.UNKNOWN, "no public name of smdebug 1.0.34 that tdbg knows")
    return names.of_name(last)


def _prefixes(dotted: str) -> list[str]:
    parts = dotted.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _text(node: ast.AST) -> str:
    try:
        return ast.unparse(node)[:200]
    except (RecursionError, ValueError):
        return "..."


def _merge(env: Env, ends: list[Env]) -> None:
    """What holds after branches of which any may have been taken; `ends` are environments inside `env`."""
    for name in {name for end in ends for name in end.own}:
        values = [value for end in ends if (value := end.get(name, _MISSING)) is not _MISSING]
        # A name that one branch alone has (an import, mostly) is what it says there.
        env[name] = values[0] if all(_same(value, values[0]) for value in values) else Unknown(name)


def _same(one: Any, other: Any) -> bool:
    if one is other or (isinstance(one, Name) and one == other):
        return True
    return type(one) is type(other) and is_known(one) and is_known(other) and one == other


def _binary(node: ast.BinOp, left: Any, right: Any) -> Any:
    found: Any = None
    if isinstance(left, (str, list)) and type(left) is type(right):
        if isinstance(node.op, ast.Add) and len(left) + len(right) <= _LARGEST:
            found = operator.add(left, right)
    elif all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (left, right)):
        try:
            if isinstance(node.op, ast.Add):
                found = left + right
            elif isinstance(node.op, ast.Sub):
                found = left - right
            elif isinstance(node.op, ast.Mult):
                found = left * right
            elif isinstance(node.op, ast.Div):
                found = left / right
        except ArithmeticError:
            pass
    return found if found is not None and _moderate(found) else Unknown(_text(node))


def _moderate(value: Any) -> bool:
    """Whether a number can be written down."""
    return not isinstance(value, int) or value.bit_length() <= _LARGEST_BITS


def _builtin(node: ast.Call, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """Those that people write configurations with."""
    if name == "dict" and (not arguments or (len(arguments) == 1 and isinstance(arguments[0], dict))):
        return {**(arguments[0] if arguments else {}), **keywords}
    if len(arguments) == 1 and not keywords and isinstance(arguments[0], (str, int, float)):
        try:
            if name == "str":
                return str(arguments[0])
            if name == "int":
                return int(arguments[0])
            if name == "float":
                return float(arguments[0])
        except (ValueError, OverflowError):
            pass
    return Unknown(_text(node))
