"""Annotations, resolved when they are first needed and in the scope where they were written.

Annotations may be text (``from __future__ import annotations``, quotes) or deferred (Python 3.14).
They may name classes that come later, live in the class body or in a function. `Scope` remembers
where a class was made; frames are kept only while text is unresolved. Type variables are replaced
by the arguments of the concrete class.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from sharding_app.errors import DeclarationError

_CLASSVAR = re.compile(r"^\s*(\w+\.)?ClassVar\b")

if sys.version_info >= (3, 14):
    import annotationlib

    def raw_annotations(thing: Any) -> dict[str, Any]:
        """The annotations as they are known now: later names stand as forward references."""
        return annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)

else:

    def raw_annotations(thing: Any) -> dict[str, Any]:
        """The annotations as they are known now: later names stand as text."""
        return inspect.get_annotations(thing)


class Scope:
    """The names around a class statement that its annotations use.

    Frames are held only while such a name is still missing, so that a finished function keeps
    nothing alive.
    """

    __slots__ = ("_found", "_frames", "_wanted")

    def __init__(self, frames: list[types.FrameType], wanted: set[str]) -> None:
        self._frames = frames
        self._wanted = wanted
        self._found: dict[str, Any] = {}

    @classmethod
    def nowhere(cls) -> Scope:
        """Make a scope with no names of its own."""
        return cls([], set())

    @classmethod
    def around(cls, qualname: str, things: Iterable[Any]) -> Scope:
        """Make the scope of a class of that `qualname`; called while its statement runs."""
        outer, _, own = qualname.rpartition(".")
        outer = outer.removesuffix(".<locals>")
        wanted: set[str] = set()
        if outer:
            for thing in things:
                for annotation in raw_annotations(thing).values():
                    wanted |= _free_names(annotation)
            wanted.discard(own)
        frame: types.FrameType | None = sys._getframe(1) if wanted else None
        while frame is not None and frame.f_code.co_qualname != outer:
            frame = frame.f_back
        frames = []
        while frame is not None and frame.f_code.co_name != "<module>":
            frames.append(frame)
            if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                break  # a function: the frame behind it is its caller, not its scope
            frame = frame.f_back
        scope = cls(frames, wanted)
        scope.names()
        return scope

    def names(self) -> dict[str, Any]:
        """Return the names as far as they are known now, the innermost winning."""
        if self._frames:
            space: dict[str, Any] = {}
            for frame in reversed(self._frames):
                space.update(type_names(frame.f_locals))
            self._found = {name: space[name] for name in self._wanted if name in space}
            known = {*self._found, *self._frames[0].f_globals, *vars(builtins)}
            if self._wanted <= known:
                self._frames = []
        return self._found


def resolved(thing: Any, module: str, names: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the annotations of `thing` itself (no bases) as types, without class variables."""
    try:
        written = raw_annotations(thing)
        wanted = {name: value for name, value in written.items() if not is_classvar(value)}
        spots = {
            **names,
            **{param.__name__: param for param in getattr(thing, "__type_params__", ())},
        }

        def carrier() -> None: ...

        carrier.__annotations__ = wanted
        space = getattr(sys.modules.get(module), "__dict__", {})
        return typing.get_type_hints(carrier, dict(space), spots, include_extras=True)
    except Exception as error:
        raise DeclarationError(f"{what}: an annotation cannot be resolved: {error}") from error


def type_names(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names that an annotation may use: ``date: date | None = None`` must not find its
    own None.
    """
    return {
        name: value
        for name, value in space.items()
        if isinstance(value, (type, types.ModuleType))
        or type(value).__module__ in {"typing", "types", "typing_extensions"}
    }


def is_classvar(annotation: Any) -> bool:
    """Tell whether an annotation is ``ClassVar``, in any of its spellings."""
    if isinstance(annotation, str):
        return _CLASSVAR.match(annotation) is not None
    text = getattr(annotation, "__forward_arg__", None)
    if text is not None:
        return _CLASSVAR.match(text) is not None
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def type_arguments(cls: type) -> dict[type, dict[Any, Any]]:
    """Return, for each generic base of `cls`, the arguments of its type variables, seen from
    `cls`.
    """
    found: dict[type, dict[Any, Any]] = {}

    def visit(base: Any, outer: dict[Any, Any]) -> None:
        origin = typing.get_origin(base) or base
        if not isinstance(origin, type) or origin in (object, typing.Generic):
            return
        own: dict[Any, Any] = {}
        if origin is not base:
            params = getattr(origin, "__parameters__", ())
            own = dict(zip(params, (substituted(a, outer) for a in typing.get_args(base)), strict=False))
        if own or origin not in found:
            found[origin] = own
        for parent in origin.__dict__.get("__orig_bases__", origin.__bases__):
            visit(parent, own)

    visit(cls, {})
    return found


def substituted(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    """Replace the type variables of `annotation`; an open one becomes its bound, or Any."""
    if isinstance(annotation, TypeVar):
        if annotation in arguments:
            return arguments[annotation]
        if annotation.__bound__ is not None and not isinstance(annotation.__bound__, typing.ForwardRef):
            return annotation.__bound__
        if annotation.__constraints__:
            return typing.Union[annotation.__constraints__]  # noqa: UP007 (built at run time)
        return Any
    params = getattr(annotation, "__parameters__", ())
    if not params or isinstance(annotation, type):
        return annotation
    return annotation[tuple(substituted(param, arguments) for param in params)]


def _free_names(annotation: Any) -> set[str]:
    """Return the names that the text inside `annotation` uses."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        try:
            tree = ast.parse(annotation.strip(), mode="eval")
        except SyntaxError:
            return set()  # the text of a Literal
        found: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= _free_names(node.value)
        return found
    return {name for part in typing.get_args(annotation) for name in _free_names(part)}
