"""What ``import cel_lens`` gives, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import cel_lens

PACKAGES = [
    ".".join(path.relative_to(Path(cel_lens.__file__).parent.parent).parent.parts)
    for path in sorted(Path(cel_lens.__file__).parent.rglob("__init__.py"))
    if path.parent.name != "child"  # files that run in another process; nothing is imported from there
]


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("name", cel_lens.__all__)
def test_every_public_name_is_there_and_explains_itself(name: str) -> None:
    value = getattr(cel_lens, name)
    assert name in dir(cel_lens)
    if name != "INTACT":
        assert value.__doc__
        assert value.__name__ == name
        assert value.__module__.startswith("cel_lens.")


def test_names_stand_in_order_and_no_other_name_is_listed() -> None:
    assert len(set(cel_lens.__all__)) == len(cel_lens.__all__)
    assert dir(cel_lens) == sorted(cel_lens.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'cel_lens' has no attribute 'find_heads'"):
        cel_lens.find_heads  # noqa: B018
    assert not hasattr(cel_lens, "__wrapped__")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_exports_what_it_says(package: str) -> None:
    module = import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_importing_loads_no_heavy_library_and_has_no_effect() -> None:
    heavy = (
        "torch",
        "transformer_lens",
        "transformers",
        "pandas",
        "plotly",
        "scipy",
        "numpy",
        "ray",
        "datasets",
    )
    found = python(
        f"import sys, cel_lens, cel_lens.cli; print([name for name in {heavy!r} if name in sys.modules])"
    )
    assert found.stdout == "[]\n", found.stderr
    assert found.stderr == ""


def test_the_whole_interface_imports_without_a_warning() -> None:
    code = "import cel_lens; [getattr(cel_lens, name) for name in cel_lens.__all__]; from cel_lens import *"
    found = python(code, "-W", "error")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_version_is_the_one_of_the_distribution() -> None:
    text = Path(cel_lens.__file__).parents[1].joinpath("pyproject.toml").read_text()
    assert f'\nversion = "{cel_lens.__version__}"\n' in text


def test_types_and_values_of_the_lazy_names_agree() -> None:
    tree = ast.parse(Path(cel_lens.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (node.module, alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {(home, name) for home, names in cel_lens._HOMES.items() for name in names}
