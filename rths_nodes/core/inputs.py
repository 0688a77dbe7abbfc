# SPDX-License-Identifier: Apache-2.0
"""Files named by parameters: absolute paths, hashes of contents, and copies.

A file is identified by the SHA-256 of its bytes. The hash of a Python program includes the contents and relative
paths of the modules that the program imports from its folder or below. These modules are found without running the
program.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TypeAlias

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, join, show
from rths_nodes.core.parameters import Spec, declared
from rths_nodes.core.text_files import read_bytes, reason, replaced

LARGEST_MODULE = 64 << 20
ENDINGS = (".py", *EXTENSION_SUFFIXES)

LARGEST_FILE = 1 << 30
FOLDER = "inputs"


@dataclass(frozen=True)
class Named:
    """File named by the parameter with the path ``place``. ``opens`` lists the files that a Python program opens.

    ``runs`` is true for programs of any kind, and ``columns`` for files with columns of numbers.
    """

    place: str
    path: str
    program: bool = False
    opens: tuple[str, ...] = ()
    runs: bool = False
    columns: bool = False

    def absolute(self, folder: Path) -> str:
        return str((folder / os.path.expanduser(self.path)).absolute())

    def _read(self) -> tuple[dict[str, bytes], str, str]:
        """Return the contents of all files by path, the path of the main file, and the hash of the contents.

        The files are the main file and all files that it uses. Paths are relative to their common folder.
        """
        main = Path(self.absolute(Path()))
        try:
            files = modules_of(main) if self.program else {main: read_bytes(main, LARGEST_FILE)}
            for opened in self.opens if self.program else ():
                file = Path(os.path.normpath(main.parent / opened))
                files[file] = read_bytes(file, LARGEST_FILE)
        except (OSError, ValueError) as error:
            unread = getattr(error, "filename", None) or self.path
            raise ConfigError(
                f"{self.place} = {show(self.path)}: {unread} cannot be read ({reason(error)})"
            ) from error
        root = Path(os.path.commonpath([file.parent for file in files])) if self.program else main.parent
        contents = {file.relative_to(root).as_posix(): content for file, content in files.items()}
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        name = main.relative_to(root).as_posix()
        if len(hashes) == 1:
            return contents, name, hashes[name]
        return contents, name, hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()

    def hash(self) -> str:
        """Return the hash of the contents. For an unreadable file, which is refused later, return its path."""
        try:
            return self._read()[2]
        except ConfigError:
            return self.path

    def copy(self, folder: Path) -> str:
        """Return the path of the read-only copy in ``folder/<hash>``. Create the copy if it is missing.

        Raises ConfigError if the copy has changed, or cannot be written.
        """
        contents, name, digest = self._read()
        target, before = folder / digest, Path(self.path)
        if before.is_relative_to(folder) and not before.is_relative_to(target):
            raise ConfigError(f"{self.place} = {before}: must be the copy of a tested file, but has changed")
        try:
            for part, content in contents.items():
                _put(target / part, content)
        except OSError as error:
            raise ConfigError(f"{self.place}: {target} cannot be written ({error.strerror})") from error
        return str(target / name)

    def beside(self, folders: Sequence[Path]) -> str:
        """Return the path of the copy in the first of ``folders`` that contains a copy, or else ``path``."""
        parts = Path(self.path).parts
        if FOLDER not in parts:
            return self.path
        tail = Path(FOLDER, *parts[len(parts) - parts[::-1].index(FOLDER) :])
        return next((str(folder / tail) for folder in folders if (folder / tail).is_file()), self.path)


def _put(path: Path, content: bytes) -> None:
    with suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return
        raise ConfigError(f"{path}: must be the copy of a tested file, but has changed")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as beside:
        beside.write_bytes(content)
        beside.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)


Change: TypeAlias = Callable[[Named], str]


def replace_files(cls: type, data: dict[str, object], change: Change) -> None:
    for name, spec in declared(cls).items():
        replace_files_of(spec, data, name, change, name)


def replace_files_of(spec: Spec, data: dict[str, object], name: str, change: Change, location: str = "") -> None:
    value = data.get(name)
    if spec.kind in ("path", "matrix") and isinstance(value, str):
        listed = data.get(spec.opens)
        opens = [file for file in listed if isinstance(file, str)] if isinstance(listed, (list, tuple)) else ()
        data[name] = change(Named(location, value, bool(spec.opens), tuple(opens), spec.runs, spec.columns))
    if isinstance(value, dict):
        for key, inner in declarations_in(spec, value).items():
            replace_files_of(inner, value, key, change, join(location, key))


def declarations_in(spec: Spec, data: Data) -> Mapping[str, Spec]:
    """Return the declarations of the keys in a section; empty for an unknown type, which is refused later."""
    if spec.kind in ("sections", "components"):
        return dict.fromkeys(data, Spec("section", "", None, family=spec.family, cls=spec.cls))
    if spec.cls is not None:
        return declared(spec.cls)
    with suppress(ConfigError):
        return declared(registry.load(spec.family, data.get("type")).Params) if spec.family else {}
    return {}


def named_files(cls: type, data: dict[str, object]) -> list[Named]:
    files: list[Named] = []

    def noted(named: Named) -> str:
        files.append(named)
        return named.path

    replace_files(cls, data, noted)
    return files


def make_absolute(cls: type, data: dict[str, object], folder: Path) -> None:
    replace_files(cls, data, lambda named: named.absolute(folder))


def contained(data: object) -> object:
    """Return ``data`` with absolute file paths replaced by hashes of the files' contents."""
    if isinstance(data, dict):
        return {key: contained(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [contained(value) for value in data]
    if isinstance(data, str) and os.path.isabs(data) and os.path.isfile(data):
        with suppress(OSError):  # any text may happen to name an unreadable file
            return hashlib.sha256(Path(data).read_bytes()).hexdigest()
    return data


def modules_of(program: Path) -> dict[Path, bytes]:
    """Return the contents, by path, of ``program`` and its modules. Raises the errors of ``read_bytes``."""
    folder = program.parent
    contents = {program: read_bytes(program, LARGEST_MODULE)}
    waiting: list[tuple[Path, tuple[str, ...]]] = [(program, ())]
    while waiting:
        path, package = waiting.pop()
        for name in sorted(_imported(contents[path], package)):
            for module, inside in _located(folder, name):
                if module not in contents:
                    contents[module] = read_bytes(module, LARGEST_MODULE)
                    waiting.append((module, inside))
    return contents


def _imported(source: bytes, package: tuple[str, ...]) -> set[tuple[str, ...]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    modules: set[tuple[str, ...]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = (*above, *(node.module or "").split(".")) if node.module else above
            modules |= {base} | {(*base, alias.name) for alias in node.names}
    return modules


def _located(folder: Path, name: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    for depth in range(1, len(name) + 1):
        target, inside = folder.joinpath(*name[:depth]), name[:depth]
        for ending in ENDINGS:
            if (module := target / f"__init__{ending}").is_file():
                yield module, inside
                break
            if (module := target.with_name(target.name + ending)).is_file():
                yield module, inside[:-1]
                break
