"""Make the keywords of functions such as ``hookcli.inspect`` from fields of dataclasses."""

from __future__ import annotations

import os
import re
import reprlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hookcli.errors import HookcliError, RequestError, hint_near
from hookcli.outside.flags import (
    REFERENCE,
    Field,
    Flag,
    find_nearest,
    find_panel,
    list_fields,
    list_paths,
    read_field,
)
from hookcli.outside.urls import choose, shown
from hookcli.verbs.call import VerbCall, VerbListener
from hookcli.verbs.memory import held

R = TypeVar("R")

# The panels of ``--help`` in order. Late options of a request come after the others, and so do the
# options that a verb has besides its requests.
PANELS = (
    *("Analysis", "Layers", "Tolerance", "Gradients", "Channels", "Rounding", "Score", "Output"),
    *("Model", "Pictures", "Images", "Attention", "Tensors", "Findings", "Changes", "Machine"),
)
_LAST = len(PANELS)
TABLES = ("table", "json", "jsonl", "csv", "md")
"""The values of ``--format`` for commands that print a table."""
FILES = ("text", "json", "jsonl")
"""The values of ``--format`` for commands that write files; ``text`` prints the files' names."""
MOST = 100_000  # the largest whole number of an option that counts something
_SAVING = re.compile(r"save them: .* (\w+)$")  # a hint that quotes a whole command
_LIST = "give a text, or a list of texts"
_ARTICLES = {"URL": "a URL", "@LIST": "an @LIST"}  # words of arguments that options need


@dataclass(frozen=True, slots=True)
class Without:
    """Annotates a verb's parameter with the keywords to leave out, such as ``"edit prune"``."""

    names: str


@dataclass(frozen=True, slots=True)
class Option:
    rank: int  # of the panel in ``--help``
    field: Field
    flag: Flag
    panel: str
    is_own: bool = False  # whether it is a parameter of the verb, and not of a request

    @property
    def name(self) -> str:
        return self.field.parameter

    @property
    def at_most(self) -> int | None:
        counts = self.flag.at_least is not None and self.field.kind in (int, int | None)
        return self.flag.at_most or (MOST if counts else None)


@dataclass(frozen=True, slots=True)
class Verb:
    function: Callable[..., Any]  # takes the ``VerbCall`` first
    fields: tuple[Field, ...]  # the parameters of the function, without the call
    options: tuple[Option, ...]  # in the order of ``--help``
    formats: tuple[str, ...]  # of ``--format``; without any, the outcome is printed as a text

    @property
    def name(self) -> str:
        return self.function.__name__

    def run(self, given: Mapping[str, Any], listener: VerbListener) -> Any:
        _refuse_useless([each.flag for each in self.options], given)
        call = VerbCall(self.name, frozenset(given), listener)
        return self.function(call, **_fill_fields(self.fields, given))

    def to_keywords(self, text: str) -> str:
        """Replace names of fields and options in a message by keywords, such as ``fail_on``."""
        paths = list(list_paths(self.fields))

        def name(found: re.Match[str]) -> str:
            field, value, _ = found.groups()
            flag = find_nearest(paths, field)
            if flag is None:
                return found[0]
            inner = re.fullmatch(r"\w+\((.+)\)", value or "")  # ClusterRequest('auto')
            given = inner[1] if inner else repr(flag.word) if flag.word else value
            return f"`{flag.parameter}{f'={given}' if given else ''}`"

        words = {each.flag.name: f"`{each.name}`" for each in self.options}
        text = _SAVING.sub(_name_saving, shown(text))
        text = re.sub(r"(?<![\w-])--[a-z-]+", lambda found: words.get(found[0], found[0]), text)
        return REFERENCE.sub(name, text)

    def read(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Check and convert the values of keywords; leave out None, [] and ().

        Raise a RequestError for a wrong value, or if a keyword is unknown or missing.
        """
        known = {each.name: each for each in self.options}
        for name in keywords:
            if name not in known:
                hint = hint_near(name, known, f"there are: {', '.join(known)}")
                raise RequestError(f"`hookcli.{self.name}` has no keyword {name!r}", hint)
        given = {
            name: value
            for name, value in keywords.items()
            if value is not None and not (isinstance(value, (list, tuple)) and not value)
        }
        if missing := [n for n, o in known.items() if o.field.is_required and n not in given]:
            raise RequestError(f"`hookcli.{self.name}` needs {missing[0]!r}", f"add {missing[0]}=…")
        return {name: read_value(known[name], value) for name, value in given.items()}


def _name_saving(command: re.Match[str]) -> str:
    pooled = "" if command[1] == "tensors" else f" and `pool={command[1]!r}`"
    return f"make the run again, with `save='tensors'`{pooled}"


def verb(*formats: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that gives a function keywords: the fields of its requests (dataclasses).

    The function gets the ``VerbCall`` first. Arguments of the command line may be given by
    position. A parameter replaces the keyword of a request that has the same name; its value also
    fills the field of the request. ``formats`` are the words that ``--format`` takes.
    """

    def make(function: Callable[..., R]) -> Callable[..., R]:
        returned = function.__annotations__.pop("return")  # its types would be imported
        hints = get_type_hints(function, include_extras=True)
        function.__annotations__["return"] = returned
        _, *named = signature(function).parameters.items()
        own = tuple(
            read_field(name, hints[name], MISSING if each.default is each.empty else each.default)
            for name, each in named
        )
        left_out = {each.parameter for each in own if each.request is None}
        parts = [part for hint in hints.values() for part in getattr(hint, "__metadata__", ())]
        left_out.update(*(part.names.split() for part in parts if isinstance(part, Without)))
        listed = (each for each in _list_options(own) if each.is_own or each.name not in left_out)
        options = sorted(listed, key=attrgetter("rank"))
        unique = tuple({option.name: option for option in options}.values())
        made = Verb(function, own, unique, formats)
        positional = [each.name for each in unique if each.flag.is_argument]

        @wraps(function)
        def call(*values: object, **keywords: object) -> R:
            if len(values) > len(positional):
                what = ", ".join(positional) or "no value"
                raise TypeError(f"`hookcli.{made.name}` takes {what} by position; name the others")
            if twice := [n for n in positional[: len(values)] if n in keywords]:
                raise TypeError(f"`hookcli.{made.name}` got {twice[0]!r} twice")
            words = dict(zip(positional, values, strict=False))
            try:
                with held(words | keywords, {option.name for option in unique}) as named:
                    outcome: R = made.run(made.read(named), VerbListener(made.to_keywords))
                    return outcome
            except HookcliError as error:
                error.message = made.to_keywords(error.message)
                error.hint = made.to_keywords(error.hint)
                raise

        call.verb = made  # type: ignore[attr-defined]
        call.__signature__ = Signature(  # type: ignore[attr-defined]
            sorted(map(_make_parameter, unique), key=attrgetter("kind")), return_annotation=returned
        )
        return call

    return make


def _make_parameter(option: Option) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD if option.flag.is_argument else Parameter.KEYWORD_ONLY
    default = Parameter.empty if option.field.is_required else None
    return Parameter(option.name, kind, default=default, annotation=option.field.kind)


def read_value(option: Option, value: Any) -> Any:
    """Check and convert a keyword's value. A text such as ``"220,180"`` is parsed later."""
    flag, kind = option.flag, option.field.kind
    if type(value).__module__.partition(".")[0] in ("numpy", "torch"):
        value = _to_plain(value)
    if isinstance(value, Mapping) and flag.many:
        return [f"{key}={_read_item(option, key, each)}" for key, each in value.items()]
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if flag.many:
        parts = [value] if isinstance(value, str) or not isinstance(value, Iterable) else value
        items = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in parts]
        if all(isinstance(each, str) for each in items):
            return items
        if kind == tuple[str, ...]:
            raise RequestError(f"`{option.name}` cannot be {_show(value)}", _LIST)
        return tuple(items)
    if isinstance(value, str) and flag.read is not None:
        return value
    return _check(option, kind, value)


def _show(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_show, value[:3]))}{', ...' * bool(value[3:])}]"
    text = reprlib.repr(value)
    return f"a {type(value).__name__}" if "\n" in text or text.startswith("<") else text


def _read_item(option: Option, key: object, value: Any) -> Any:
    plain, waiting = _to_plain(value), [value]
    while waiting:
        each = _to_plain(waiting.pop())
        if isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, (list, tuple)):
            waiting += each
        elif not isinstance(each, (str, int, float, os.PathLike, type(None))):
            hint = f"give a {'file .npy, a ' if option.name == 'input' else ''}text or a number"
            what = f"`{option.name}` cannot have a {type(each).__name__} as {str(key)!r}"
            raise RequestError(what, hint)
    return plain


def _to_plain(value: Any) -> Any:
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    is_word = type(value).__name__ in ("device", "dtype")
    return str(value).removeprefix("torch.") if is_word else value


def _check_numbers(name: str, kinds: Iterable[Any], value: Sequence[object]) -> None:
    for items in (get_args(each) for each in kinds if get_origin(each) is tuple):
        is_right = len(value) == len(items) and all(isinstance(n, (int, items[0])) for n in value)
        if ... not in items and not is_right:
            hint = f"give it as {len(items)} numbers"
            raise RequestError(f"{name} cannot be {reprlib.repr(value)}", hint)


def _check(option: Option, kind: Any, value: Any) -> Any:
    name = f"`{option.name}`"
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if choices := option.field.choices:
        if value not in choices:
            hint = hint_near(str(value), choices, f"choose one of: {', '.join(choices)}")
            raise RequestError(f"{name} cannot be {reprlib.repr(value)}", hint)
        return value
    if Any in kinds:
        return value
    if Path in kinds and isinstance(value, str):
        return Path(value)
    origins = {get_origin(each) for each in kinds}
    if Mapping in origins and isinstance(value, Mapping):
        return value
    if tuple in origins and hasattr(value, "__getitem__"):
        if isinstance(value, Sequence):
            _check_numbers(name, kinds, value)
        return tuple(value)
    plain = tuple(each for each in kinds if each in (bool, int, float, str, Path))
    if str in plain and int not in plain and type(value) in (int, float):
        return str(value)
    if float in plain and type(value) is int:
        value = float(value)
    if not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain):
        wanted = " or ".join(each.__name__ for each in plain) or "another value"
        hint = "give the name of a model" if option.name == "like" else f"give it as {wanted}"
        raise RequestError(f"{name} cannot be {_show(value)}", hint)
    low, high = option.flag.at_least, option.at_most
    if not isinstance(value, (bool, str)) and (
        (low is not None and value < low) or (high is not None and value > high)
    ):
        span = f"from {low} to {high}" if high is not None else f"at least {low}"
        raise RequestError(f"{name} cannot be {value}", f"it must be {span}")
    return value


def _refuse_useless(flags: Sequence[Flag], given: Mapping[str, Any]) -> None:
    """Raise a RequestError if the user gave an option without another option that it needs."""
    lists = (value if isinstance(value, list) else [value] for value in given.values())
    words = [word for each in lists for word in each if isinstance(word, str)]
    there = {flag.name for flag in flags if flag.parameter in given}
    there |= {"URL" for word in words if choose(word, local=False, remote=True)}
    there |= {"@LIST" for word in words if word == "-" or word.startswith("@")}
    known = {"URL", "@LIST", *(flag.name for flag in flags)}
    for flag in flags:
        needed = [name for name in flag.needs.split("|") if name in known]
        if flag.parameter in given and needed and there.isdisjoint(needed):
            called = {each.name: f"`{each.parameter}`" for each in flags}
            what = " or ".join(called.get(name, name) for name in needed)
            named = " or ".join(_ARTICLES.get(name) or called[name] for name in needed)
            asked = "name" if needed[0] in _ARTICLES else "add"
            useless = f"`{flag.parameter}` has no effect without {what}"
            raise RequestError(useless, f"{asked} {named}")


def _list_options(
    fields: Iterable[Field], request: type | None = None, *, may_miss: bool = False
) -> Iterator[Option]:
    """Yield the options of ``fields``, and of the dataclasses (requests) that are their types."""
    # ``request`` is the dataclass that has ``fields``; None for the parameters of a verb.
    panel = "" if request is None else find_panel(request)
    for field in fields:
        if field.flag is not None:
            shown = panel or field.flag.panel
            has_rank = request is not None and shown in PANELS and not field.flag.late
            rank = PANELS.index(shown) if has_rank else _LAST
            known = replace(field, default=None) if may_miss and field.is_required else field
            yield Option(rank, known, field.flag, shown, is_own=request is None)
        if field.request is not None:
            inner, is_optional = list_fields(field.request), field.kind is not field.request
            yield from _list_options(inner, field.request, may_miss=is_optional)


def _fill_fields(fields: Iterable[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields:
        flag, value = field.flag, given.get(field.parameter)
        if field.request is not None:
            values[field.name] = _fill_part(field, field.request, given)
        elif flag is not None and flag.is_none(given):
            if value is not None:
                name, word = flag.none or ("", "")
                other = f"`{name.strip('-')}={word!r}`"
                why = f"`{flag.parameter}` has no effect with {other}"
                raise RequestError(why, "leave out one of them")
            values[field.name] = None
        elif value is not None:
            values[field.name] = value if flag is None else _read(flag, value)
        elif field.is_required:
            values[field.name] = ()  # hookcli golden can run without images
    return values


def _read(flag: Flag, value: Any) -> Any:
    return flag.read_given(value) if isinstance(value, (str, list, bool)) else value


def _fill_part(field: Field, request: type, given: Mapping[str, Any]) -> Any:
    """Make the request (dataclass) that is the value of ``field`` from keywords in ``given``."""
    # None if the user did not ask for an optional one; giving options of it is then an error.
    parts, value = list_fields(request), given.get(field.parameter)
    if field.flag is not None:
        is_asked = value is not None and _read(field.flag, value)
    elif isinstance(value, request):
        return value
    else:
        is_asked = all(part.parameter in given for part in parts if part.is_required)
    if is_asked or field.kind is request:
        return request(**_fill_fields(parts, given))
    for part in parts:
        if part.flag is not None and part.parameter in given:
            message, hint = request.UNASKED  # type: ignore[attr-defined]
            raise RequestError(message.format(option=part.flag.name), hint)
    return None
