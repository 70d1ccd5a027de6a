"""Requests filled by the keywords of a verb."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated, ClassVar

import pytest

import hookcli
from hookcli import __main__ as entry
from hookcli.errors import RequestError
from hookcli.outside.flags import Flag
from hookcli.verbs import subjects
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import PANELS, verb


@dataclass(frozen=True, slots=True)
class Varnish:
    """Finish: what comes last."""

    UNASKED: ClassVar[tuple[str, str]] = ("{option} is for varnish", "add --varnish NAME")

    name: Annotated[str, Flag("--varnish NAME", "Which.")]
    layers: Annotated[int, Flag("--varnish-layers N", "How many.", at_least=1)] = 1


@dataclass(frozen=True, slots=True)
class Colours:
    """Paint: what it is painted with."""

    colours: Annotated[tuple[str, ...], Flag("--colours NAME", "Which.", many=True)] = ("red",)
    coats: Annotated[int, Flag("--coats N", "How many.")] = 1
    dries: Annotated[bool, Flag("--no-wait", "Paint on wet paint.")] = True
    varnish: Varnish | None = None


Thing = Annotated[str, Flag("--thing NAME", "What.")]


def make_command():
    seen = []

    @verb()
    def paint(call: VerbCall, colours: Colours, thing: Thing = "wall") -> None:
        seen.append((colours, thing))

    return paint, seen


def test_the_flags_of_a_request_become_keywords_with_its_panel_and_its_defaults():
    paint, _ = make_command()
    assert list(signature(paint).parameters) == [
        *("colours", "coats", "no_wait", "varnish", "varnish_layers", "thing")
    ]
    first = paint.verb.options[0]
    assert (first.panel, first.field.default) == ("Paint", ("red",))


def test_the_values_of_the_options_fill_the_request():
    paint, seen = make_command()
    paint(colours=["blue", "green"], coats=2, no_wait=True, varnish="oil", thing="door")
    assert seen == [(Colours(("blue", "green"), 2, dries=False, varnish=Varnish("oil")), "door")]


def test_an_option_of_a_part_that_is_not_asked_for_is_refused_whatever_its_value():
    paint, _ = make_command()
    with pytest.raises(RequestError, match=r"^`varnish_layers` is for varnish"):
        paint(varnish_layers=1)


def test_a_parameter_with_the_name_of_an_option_takes_its_place():
    seen = []

    @verb()
    def paint(
        call: VerbCall, colours: Colours, often: Annotated[int, Flag("--coats N", "Again.")] = 3
    ) -> None:
        seen.append((colours.coats, often))

    assert [each.flag.help for each in paint.verb.options if each.name == "coats"] == ["Again."]
    paint(coats=2)
    assert seen == [(2, 2)]


def test_every_panel_of_a_help_is_known():
    """A panel whose name is misspelt would stand beside the one that is meant."""
    shown = {
        option.rich_help_panel
        for command in map(entry.build_command, subjects.COMMANDS)
        for option in command.params
        if option.param_type_name == "option"
    }
    assert shown - {None} == {*PANELS, "Against"}


@verb()
def decorate(
    call: VerbCall,
    things: Annotated[tuple[str, ...], Flag("--thing NAME", "What.", many=True)] = (),
    brush: Annotated[str, Flag("--brush NAME", "Which.", needs="URL|@LIST")] = "",
    paper: Annotated[str, Flag("--paper NAME", "Which.", needs="@LIST")] = "",
    glue: Annotated[str, Flag("--glue NAME", "Which.", needs="--other|--more|--elsewhere")] = "",
    paste: Annotated[str, Flag("--paste NAME", "Which.", needs="--other")] = "",
    tape: Annotated[str, Flag("--tape NAME", "Which.", needs="--elsewhere")] = "",
    other: Annotated[str, Flag("--other NAME", "What.")] = "",
    more: Annotated[str, Flag("--more NAME", "What.")] = "",
) -> None:
    pass


@pytest.mark.parametrize(
    ("option", "needed", "hint"),
    [
        ("brush", "URL or @LIST", "name a URL or an @LIST"),
        ("paper", "@LIST", "name an @LIST"),
        ("glue", "`other` or `more`", "add `other` or `more`"),  # no other option of the command
        ("paste", "`other`", "add `other`"),
    ],
)
def test_an_option_without_what_it_needs_is_refused(option, needed, hint):
    with pytest.raises(RequestError) as refused:
        decorate(thing=["b.png", "a@b", "a-b"], **{option: "wide"})
    assert refused.value.message == f"`{option}` has no effect without {needed}"
    assert refused.value.hint == hint


@pytest.mark.parametrize("word", ["@list.txt", "-", "https://host.example/a.png"])
def test_an_option_with_what_it_needs_is_taken(word):
    decorate(thing=["b.png", word], brush="wide")
    decorate(glue="strong", more="yes")
    decorate(tape="wide")  # no option of this command


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"prune": "conv"}, "`prune` 'conv': it does not say how much"),
        ({"patch": (3, 3)}, "`patch`, `rollout` and `save='attention'` are for attention"),
        ({"range": "much"}, "`range` cannot be 'much'|`range` cannot read 'much'"),
        ({"size": 0}, "`size` cannot be 0"),
        ({"dtype": "float23"}, "`dtype` cannot be 'float23'"),
        ({"layers": 5}, "`layers` cannot be 5"),
    ],
)
def test_an_error_of_a_python_call_names_its_keywords(keywords, said):
    with pytest.raises(RequestError, match=f"^({said})"):
        hookcli.inspect("resnet18", "photo.jpg", **keywords)
