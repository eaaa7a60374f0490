"""The layers, lengths and docstrings that CONTRIBUTING.md promises, read from the source with ``ast``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "cel_lens"

# Each part imports only from the rows above its own, and nothing else of its row.
ROWS = (
    ("errors",),
    ("heads",),
    ("results",),
    ("stats", "tasks", "models", "runtime"),
    ("evaluation",),
    ("search", "analysis", "export"),
    ("viz", "conflict"),
    ("cli",),
)
APART = {"theory": {"errors"}}
MAY_IMPORT_APART = {"cli"}

# Where a library may be imported: folders end with a slash, files do not.
HOMES = {
    "transformer_lens": ("models/",),
    "plotly": ("viz/", "theory/figures.py", "theory/report.py"),
    "circuitsvis": ("viz/", "theory/figures.py", "theory/report.py"),
    "datasets": ("tasks/",),
    "lm_eval": ("tasks/lm_eval.py",),
    "ray": ("runtime/ray_executor.py",),
}

# Known exceptions, each with its reason.
PERMITTED: dict[tuple[str, str], str] = {}

LONGEST_FILE = 400
LONGEST_FUNCTION = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def breaches(path: str, source: str) -> list[str]:
    """Every rule that a file of the package breaks, one sentence each.

    ``path`` is relative to the package, for example ``"viz/report.py"``.
    """
    tree = ast.parse(source)
    found = [*_bad_imports(path, tree), *_bad_lengths(source, tree), *_bare_names(tree)]
    if PurePosixPath(path).stem.strip("_") in ("utils", "util"):
        found.append("is named utils: say what is in it")
    return found


def allowed_parts(part: str) -> set[str] | None:
    """The parts that a part may import; ``None`` if it has no place in the layers."""
    if part in APART:
        return {part, *APART[part]}
    for place, row in enumerate(ROWS):
        if part in row:
            above = {name for earlier in ROWS[:place] for name in earlier}
            return {part, *above, *(APART if part in MAY_IMPORT_APART else ())}
    return None


def imports(path: str, tree: ast.AST) -> Iterator[str]:
    """Full dotted names of everything a file imports, wherever in the file it stands."""
    package = [PACKAGE, *PurePosixPath(path).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            name = node.args[0] if node.args else None
            literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
            yield name.value if literal else "a computed name"


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _bad_imports(path: str, tree: ast.AST) -> Iterator[str]:
    part = PurePosixPath(path).parts[0].removesuffix(".py")
    if part == "__init__":
        return  # the package itself offers names of every layer
    allowed = allowed_parts(part)
    if allowed is None:
        yield f"{part} has no place in the layers: give it one in this test"
        return
    for name in dict.fromkeys(imports(path, tree)):
        library, _, rest = name.partition(".")
        if name == "a computed name":
            yield "imports a computed name: only the package's own __init__ may"
        elif library == PACKAGE:
            yield from _bad_part(part, rest.partition(".")[0], allowed)
        elif library in HOMES and (path, library) not in PERMITTED and not _at_home(path, HOMES[library]):
            yield f"imports {library}, which belongs in {' and '.join(HOMES[library])}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == PACKAGE:
            yield from _bad_part(part, node.attr, allowed)


def _bad_part(part: str, other: str, allowed: set[str]) -> Iterator[str]:
    if other in allowed or other == "" or (other.startswith("__") and other.endswith("__")):
        return
    if allowed_parts(other) is None:
        yield f"takes {other} from the package as a whole: name the part it comes from"
    else:
        yield f"imports {other}, which {part} must not know"


def _at_home(path: str, homes: tuple[str, ...]) -> bool:
    return any(path.startswith(home) if home.endswith("/") else path == home for home in homes)


def _bad_lengths(source: str, tree: ast.AST) -> Iterator[str]:
    length = len(source.splitlines())
    if length > LONGEST_FILE:
        yield f"has {length} lines: at most {LONGEST_FILE}"
    for node in ast.walk(tree):
        if isinstance(node, Function):
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            if length > LONGEST_FUNCTION:
                yield f"{node.name} has {length} lines: at most {LONGEST_FUNCTION}"


def _docstring_lines(node: Function) -> int:
    """Explaining a function well does not make it a long one."""
    if ast.get_docstring(node) is None:
        return 0
    return (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


def _bare_names(tree: ast.Module) -> Iterator[str]:
    if tree.body and ast.get_docstring(tree) is None:
        yield "the file has no docstring"
    yield from _bare_definitions(tree, "")


def _bare_definitions(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for child in _statements(node.body):
        if not isinstance(child, Function | ast.ClassDef) or child.name.startswith("_"):
            continue
        if ast.get_docstring(child) is None and not _is_variant(child):
            yield f"{prefix}{child.name} is public and has no docstring"
        if isinstance(child, ast.ClassDef):
            yield from _bare_definitions(child, f"{prefix}{child.name}.")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a block, those under ``if`` and ``try`` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements([*statement.body, *statement.orelse])


def _is_variant(node: Function | ast.ClassDef) -> bool:
    """Overloads and setters share the docstring of what they belong to."""
    marks = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
    return bool(marks & {"overload", "setter", "deleter"})


FILES = sorted(path.relative_to(ROOT / PACKAGE).as_posix() for path in (ROOT / PACKAGE).rglob("*.py"))


@pytest.mark.parametrize("path", FILES)
def test_the_package_keeps_its_rules(path):
    assert breaches(path, (ROOT / PACKAGE / path).read_text(encoding="utf-8")) == []


def test_every_layer_is_read():
    assert {"errors.py", "heads.py", "results/__init__.py", "search/pipeline.py", "cli/app.py"} <= set(FILES)


DOC = '"""Text."""\n'


@pytest.mark.parametrize(
    ("path", "source", "words"),
    [
        ("heads.py", "from cel_lens.results import Outcomes", "imports results"),
        ("results/gains.py", "import cel_lens.stats", "imports stats"),
        ("stats.py", "from cel_lens.tasks import Task", "imports tasks"),
        ("tasks/base.py", "from cel_lens.models.loading import load_model", "imports models"),
        ("models/loading.py", "from cel_lens import runtime", "imports runtime"),
        ("runtime/journal.py", "from ..tasks import Task", "imports tasks"),
        ("evaluation/answers.py", "from cel_lens.search.run import SearchRun", "imports search"),
        ("search/run.py", "from cel_lens.analysis import profile", "imports analysis"),
        ("analysis/profile.py", "from cel_lens.search import find_beneficial_heads", "imports search"),
        ("export.py", "from cel_lens.viz import write_report", "imports viz"),
        ("search/run.py", "from .. import viz", "imports viz"),
        ("viz/report.py", "from cel_lens import cli", "imports cli"),
        ("theory/model.py", "from cel_lens.heads import Head", "imports heads"),
        ("theory/model.py", "from cel_lens.stats import tango_interval", "imports stats"),
        ("search/run.py", "from cel_lens.theory import model", "imports theory"),
        ("search/run.py", "from cel_lens import write_report", "takes write_report from the package"),
        ("search/run.py", "import cel_lens\nwrite = cel_lens.write_report", "takes write_report from the package"),
        ("search/run.py", "import cel_lens\nwrite = cel_lens.viz", "imports viz"),
        ("tasks/base.py", "def _f():\n    from cel_lens.search import x", "imports search"),
        ("tasks/base.py", "if TYPE_CHECKING:\n    from cel_lens.cli import x", "imports cli"),
        ("tasks/base.py", "import_module('cel_lens.viz.report')", "imports viz"),
        ("tasks/base.py", "importlib.import_module(name)", "computed name"),
        ("helpers.py", "import json", "no place in the layers"),
        ("evaluation/sweep.py", "from transformer_lens import utils", "imports transformer_lens"),
        ("search/run.py", "def _f():\n    import transformer_lens.hook_points", "imports transformer_lens"),
        ("cli/app.py", "import plotly.graph_objects as go", "imports plotly"),
        ("theory/model.py", "import plotly", "imports plotly"),
        ("analysis/attention.py", "import circuitsvis", "imports circuitsvis"),
        ("models/hub.py", "from datasets import load_dataset", "imports datasets"),
        ("runtime/executors.py", "import ray", "imports ray"),
    ],
)  # fmt: skip
def test_a_wrong_import_is_found(path, source, words):
    (found,) = breaches(path, DOC + source)
    assert words in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("heads.py", "from cel_lens.errors import InvalidInput"),
        ("results/beneficial.py", "def _f():\n    from cel_lens.results.storage import save"),
        ("search/provenance.py", "import cel_lens\nversion = cel_lens.__version__"),
        ("search/run.py", "from . import records\nfrom .joint import search_subsets"),
        ("cli/app.py", "from cel_lens.theory import verify\nfrom cel_lens.viz import write_report"),
        ("theory/model.py", "from cel_lens.errors import InvalidInput\nfrom cel_lens.theory import flow"),
        ("theory/figures.py", "import plotly.graph_objects as go"),
        ("models/layers.py", "from transformer_lens import HookedTransformer"),
        ("runtime/ray_executor.py", "import ray"),
        ("__init__.py", "from cel_lens.viz import write_report\nfound = import_module(home)"),
        ("evaluation/rays.py", "import raystack, datasets_of_ours"),
    ],
)  # fmt: skip
def test_a_right_import_passes(path, source):
    assert breaches(path, DOC + source) == []


def test_long_files_and_functions_are_found():
    assert breaches("stats.py", DOC + "\n" * (LONGEST_FILE - 1)) == []
    assert breaches("stats.py", DOC + "\n" * LONGEST_FILE) == ["has 401 lines: at most 400"]
    body = "    x = 1\n" * (LONGEST_FUNCTION - 1)
    explained = f"    {DOC[:-4]}\n    More.\n    {DOC[-4:]}"
    for start in ("def _f():\n", f"def f():\n{explained}", f"async def f():\n{explained}"):
        name = "_f" if "_f" in start else "f"
        assert breaches("stats.py", f"{DOC}{start}{body}") == []
        assert breaches("stats.py", f"{DOC}{start}{body}    x = 2\n") == [f"{name} has 61 lines: at most 60"]
    method = f"class C:\n    'Text.'\n    def _m(self):\n{body}    x = 2\n".replace("    x", "        x")
    assert breaches("stats.py", DOC + method) == ["_m has 61 lines: at most 60"]


def test_missing_docstrings_are_found():
    assert breaches("stats.py", "x = 1") == ["the file has no docstring"]
    assert breaches("stats.py", "") == []
    methods = "    def m(self): pass\n    def _p(self): pass\n    def __len__(self): pass\n"
    source = f"{DOC}def f(): pass\nclass C:\n{methods}"
    assert breaches("stats.py", source) == [
        "f is public and has no docstring",
        "C is public and has no docstring",
        "C.m is public and has no docstring",
    ]
    assert breaches("stats.py", f"{DOC}if x:\n    def f(): pass") == ["f is public and has no docstring"]
    variants = (
        "class C:\n    'Text.'\n    @overload\n    def m(self): ...\n    @x.setter\n    def x(self, v): ..."
    )
    assert breaches("stats.py", DOC + variants) == []


@pytest.mark.parametrize("name", ["utils.py", "search/utils.py", "viz/_utils.py", "viz/util.py"])
def test_utils_are_found(name):
    assert "is named utils: say what is in it" in breaches(name, DOC)
