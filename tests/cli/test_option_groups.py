"""Groups of options: filled by the command line, or by whoever calls a command from Python."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from importlib import import_module
from inspect import signature
from typing import Annotated

import typer

from hookcli import __main__ as entry
from hookcli.cli.option_groups import command

MODULES = ("options", "tolerance_options", *(f"commands.{name}" for name in entry._COMMANDS))


@dataclass(frozen=True, slots=True)
class Colours:
    """Paint: what it is painted with."""

    colours: Annotated[tuple[str, ...], typer.Option(help="Which.")] = ("red",)
    coats: Annotated[int, typer.Option(help="How many.")] = 1


def make_command():
    seen = []

    @command
    def paint(colours: Colours, thing: str = "wall") -> None:
        seen.append((colours, thing))

    return paint, seen


def test_the_fields_of_a_group_become_options_with_its_panel():
    paint, _ = make_command()
    parameters = signature(paint).parameters
    assert {name: each.default for name, each in parameters.items()} == {
        "colours": ["red"],
        "coats": 1,
        "thing": "wall",
    }
    kind, option = parameters["colours"].annotation.__origin__, parameters["colours"].annotation
    assert (kind, option.__metadata__[0].rich_help_panel) == (list[str], "Paint")


def test_the_values_of_the_options_fill_the_group():
    paint, seen = make_command()
    paint(colours=["blue", "green"], coats=2, thing="door")
    assert seen == [(Colours(("blue", "green"), 2), "door")]


def test_a_filled_group_can_be_given_too():
    paint, seen = make_command()
    paint(colours=Colours(("blue",)))
    paint()
    assert seen == [(Colours(("blue",)), "wall"), (Colours(), "wall")]


def test_every_panel_of_a_help_is_that_of_a_group():
    """A panel whose name is misspelt would stand beside the one that is meant."""
    modules = [vars(import_module(f"hookcli.cli.{name}")) for name in MODULES]
    groups = {each for module in modules for each in module.values() if is_dataclass(each)}
    shown = {
        option.rich_help_panel
        for command in typer.main.get_command(entry.app).commands.values()  # type: ignore[attr-defined]
        for option in command.params
    }
    assert shown - {None} <= {group.__doc__.partition(":")[0] for group in groups}
