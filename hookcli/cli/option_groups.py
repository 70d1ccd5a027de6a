"""Make commands from functions that take requests: the requests' fields become options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from operator import itemgetter
from typing import Annotated, Any, get_type_hints

import typer

from hookcli.cli.completion import complete_model
from hookcli.errors import RequestError
from hookcli.outside.flags import Field, Flag, find_panel, list_fields, read_field
from hookcli.outside.urls import choose

# The panels of ``--help`` in order. Late options of a request come after the others, and so do the
# options that a command has besides its requests.
_PANELS = (
    *(
        "Analysis",
        "Layers",
        "Tolerance",
        "Gradients",
        "Channels",
        "Score",
        "Output",
        "Model",
        "Pictures",
    ),
    *("Images", "Attention", "Tensors", "Findings", "Changes", "Machine"),
)
_LAST = len(_PANELS)
_MOST = 100_000  # the largest whole number of an option that counts something
_ARTICLES = {"URL": "a URL", "@LIST": "an @LIST"}  # words of arguments that options need
_COMPLETED = {"MODEL": complete_model, "MODEL|RUN": complete_model}


class Without:
    """Lists the options that a command leaves out of a request, which several commands share.

    Write ``Annotated[RunRequest, Without("edit")]`` as the type of the command's parameter, with
    the names of fields of the request.
    """

    def __init__(self, *names: str) -> None:
        self.names = names


def command(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Make a command of a function whose parameters are requests or have a ``Flag`` of their own.

    Each field with a ``Flag`` becomes an option. When the user runs the command, hookcli fills the
    requests with the values of the options and calls ``function`` with the requests. ``function``
    must return the exit code, or None for 0. If a parameter has the same name as an option of a
    request, only the parameter becomes an option; its value also fills the field of the request.
    """
    hints = get_type_hints(function, include_extras=True)
    own = [
        read_field(name, hints[name], MISSING if each.default is each.empty else each.default)
        for name, each in signature(function).parameters.items()
    ]
    known_as = {field.name: field.parameter for field in own}
    options = sorted(_list_own_options(own, hints), key=itemgetter(0))
    parameters = list({parameter.name: parameter for _, parameter in options}.values())
    flags = [each.annotation.__metadata__[-1] for each in parameters if each.name != "context"]

    @wraps(function)
    def fill_requests(*words: object, **named: object) -> int | None:
        values = dict(zip(known_as, words, strict=False)) | named
        given = {
            known_as.get(name, name): value
            for name, value in values.items()
            if value not in (None, [])
        }
        _refuse_useless(flags, given)
        return function(**_fill_fields(own, given))

    fill_requests.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    fill_requests.__annotations__ = {each.name: each.annotation for each in parameters}
    return fill_requests


def _refuse_useless(flags: Sequence[Flag], given: Mapping[str, Any]) -> None:
    """Refuse an option without a word that it needs, such as another option of the command."""
    lists = (value if isinstance(value, list) else [value] for value in given.values())
    words = [str(word) for each in lists for word in each]
    there = {flag.name for flag in flags if flag.parameter in given}
    there |= {"URL" for word in words if choose(word, local=False, remote=True)}
    there |= {"@LIST" for word in words if word == "-" or word.startswith("@")}
    known = {"URL", "@LIST", *(flag.name for flag in flags)}
    for flag in flags:
        needed = [name for name in flag.needs.split("|") if name in known]
        if flag.parameter in given and needed and there.isdisjoint(needed):
            what = " or ".join(needed)
            named = " or ".join(_ARTICLES.get(name, name) for name in needed)
            verb = "name" if needed[0] in _ARTICLES else "add"
            raise RequestError(f"{flag.name} has no effect without {what}", f"{verb} {named}")


def _list_own_options(
    own: Sequence[Field], hints: Mapping[str, Any]
) -> Iterator[tuple[int, Parameter]]:
    left_out = {field.parameter for field in own if field.request is None}
    for hint in hints.values():
        parts = getattr(hint, "__metadata__", ())
        left_out |= {name for part in parts if isinstance(part, Without) for name in part.names}
    for field in own:
        if field.request is not None:
            options = _list_options(field.request)
            yield from (each for each in options if each[1].name not in left_out)
        elif field.flag is not None:
            yield _LAST, _make_parameter(field, field.flag, field.flag.panel)
        else:
            yield _LAST, Parameter(field.name, Parameter.KEYWORD_ONLY, annotation=field.kind)


def _list_options(request: type, *, may_miss: bool = False) -> Iterator[tuple[int, Parameter]]:
    """Yield the options of a request and those inside it; with ``may_miss``, all are optional."""
    panel = find_panel(request)
    for field in list_fields(request):
        if field.flag is not None:
            shown = panel or field.flag.panel
            has_place = shown in _PANELS and not field.flag.late
            place = _PANELS.index(shown) if has_place else _LAST
            known = replace(field, default=None) if may_miss and field.is_required else field
            yield place, _make_parameter(known, field.flag, shown)
        if field.request is not None:
            yield from _list_options(field.request, may_miss=field.kind is not field.request)


def _make_parameter(field: Field, flag: Flag, panel: str) -> Parameter:
    """Default an optional parameter to None, which shows whether the user gave the option."""
    kind = field.kind
    if flag.many or flag.read is not None:
        kind = list[str] if flag.many else str
    counts = flag.at_least is not None and kind in (int, int | None)
    if flag.is_argument:
        made = typer.Argument(
            metavar=flag.metavar, help=flag.help, autocompletion=_COMPLETED.get(flag.metavar or "")
        )
    else:
        made = typer.Option(
            *flag.names,
            metavar=flag.metavar,
            help=flag.help + field.default_text,
            min=flag.at_least,
            max=flag.at_most or (_MOST if counts else None),
            rich_help_panel=panel or None,
        )
    default = Parameter.empty if field.is_required else None
    return Parameter(
        field.parameter,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, made, flag],
    )


def _fill_fields(fields: Iterable[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields:
        flag, value = field.flag, given.get(field.parameter)
        if field.request is not None:
            values[field.name] = _fill_part(field, field.request, given)
        elif flag is not None and flag.is_none(given):
            if value is not None:
                why = f"{flag.name} has no effect with {' '.join(flag.none or ())}"
                raise RequestError(why, "leave out one of them")
            values[field.name] = None
        elif value is not None:
            values[field.name] = value if flag is None else flag.read_given(value)
        elif field.is_required:
            values[field.name] = ()  # hookcli golden can run without images
    return values


def _fill_part(field: Field, request: type, given: Mapping[str, Any]) -> Any:
    """Fill a request; return None if it is optional and the user did not ask for it."""
    parts, value = list_fields(request), given.get(field.parameter)
    if field.flag is not None:
        is_asked = value is not None and field.flag.read_given(value)
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
