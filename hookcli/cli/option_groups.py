"""Groups of options: a frozen dataclass in a command's signature stands for all its fields."""

from __future__ import annotations

from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Expand the option groups in a command's signature into options.

    The command line gives one value for each option, and the command gets the filled groups.
    The panel of a group's options in ``--help`` is what its docstring says before the colon.
    """
    hints = get_type_hints(function, include_extras=True)
    groups = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    parameters: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if name in groups:
            parameters += _list_options(groups[name])
        else:
            kind = hints[name]
            parameters.append(parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def fill_groups(**values: object) -> None:
        for name, group in groups.items():
            if isinstance(values.get(name), group):
                continue  # whoever calls the command from Python fills the groups
            given = {f.name: values.pop(f.name) for f in fields(group) if f.name in values}
            lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
            values[name] = group(**given | lists)
        function(**values)

    fill_groups.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    fill_groups.__annotations__ = {each.name: each.annotation for each in parameters}
    return fill_groups


def _list_options(group: type) -> Iterator[Parameter]:
    panel = (group.__doc__ or "").partition(":")[0]
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        kind, option = get_args(hints[field.name])
        option = copy(option)
        option.rich_help_panel = panel
        default: object = Parameter.empty if field.default is MISSING else field.default
        if get_origin(kind) is tuple:  # Typer takes lists
            kind = list[str]
        if isinstance(default, tuple):
            default = list(default)
        yield Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, option],
        )
