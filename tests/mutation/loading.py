"""Put a mutant in the place of a module: when it is loaded, or into its functions when it is loaded already.

Imports no module of the project and little else: a process that a test starts loads this first (see ``site``).
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutation.mutants import mutated

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "B70_MUTANT"
"""MODULE:INDEX, in the environment of every process that a test starts"""


def path_of(module: str) -> Path:
    """Where its source stands."""
    return ROOT / f"{module.replace('.', '/')}.py"


def announce(module: str, index: int) -> None:
    """Processes started from here on load the mutant too."""
    os.environ[VARIABLE] = f"{module}:{index}"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent / "site"), str(ROOT)])


def install_announced() -> None:
    """In such a process: load the mutant that was announced."""
    module, _, index = os.environ.get(VARIABLE, "").partition(":")
    if index:
        install(module, int(index))


def install(module: str, index: int) -> None:
    """From here on the module is loaded as the mutant."""
    sys.meta_path.insert(0, _Finder(module, index))


def patch(module: str, index: int, source: str) -> bool:
    """Put the mutant into every function of the loaded module; false when one can't take it."""
    path = str(path_of(module))
    codes = {_place(code): code for code in _functions(mutated(source, index, path))}
    for function in [item for item in gc.get_objects() if isinstance(item, FunctionType)]:
        code = codes.get(_place(function.__code__)) if function.__code__.co_filename == path else None
        if code is not None and code != function.__code__:
            try:
                function.__code__ = code
            except ValueError:  # another number of variables of the function around it
                return False
    return True


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _functions(code: CodeType) -> list[CodeType]:
    inner = [item for item in code.co_consts if isinstance(item, CodeType)]
    return [*inner, *(deeper for item in inner for deeper in _functions(item))]


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, module: str, index: int) -> None:
        super().__init__(module, str(path_of(module)))
        self._index = index

    def get_code(self, fullname: str) -> CodeType:
        return mutated(Path(self.path).read_text(), self._index, self.path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, index: int) -> None:
        self._module, self._index = module, index

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        loader = _Loader(self._module, self._index)
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)
