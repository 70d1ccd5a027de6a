from __future__ import annotations

import pytest

from hookcli.errors import RequestError
from hookcli.networks.recipe import Recipe, read_recipe


def test_each_word_fills_its_field():
    text = "resize:area, fit=stretch,antialias=off,order=bgr,scale=1,library=torch,crop=8"
    assert read_recipe(f"{text},mean=-1/0/2,std=0.5") == Recipe(
        *("area", "stretch", "off", "bgr", "1", "torch", 8, (-1.0, 0.0, 2.0), (0.5,))
    )


def test_no_recipe_changes_nothing():
    assert read_recipe(None) == Recipe()


_ALL_WORDS = (
    "words, separated by commas: resize:… fit=… antialias=… order=… scale=… library=… crop=224 "
    "mean=0.5/0.5/0.5 std=0.5/0.5/0.5"
)
_RESIZE = "one of: resize:nearest, resize:bilinear, resize:bicubic, resize:area, resize:lanczos"


@pytest.mark.parametrize(
    ("text", "word", "hint"),
    [
        ("", "", _ALL_WORDS),
        ("fit=crop,", "", _ALL_WORDS),
        ("colour=3", "colour=3", _ALL_WORDS),
        ("resize=bicubic", "resize=bicubic", "did you mean resize:bicubic?"),
        ("resize:bicubc", "resize:bicubc", "did you mean resize:bicubic?"),
        ("fit:crop", "fit:crop", "did you mean fit=crop?"),
        ("resize", "resize", _RESIZE),
        ("resize:", "resize:", _RESIZE),
        ("letterbox", "letterbox", "did you mean fit=letterbox?"),
        ("BGR", "BGR", "did you mean order=bgr?"),
        ("librari=torch", "librari=torch", "did you mean library?"),
        ("antialias=on", "antialias=on", "one of: antialias=off"),
        ("scale=2", "scale=2", "one of: scale=255, scale=1"),
        ("crop=0", "crop=0", "crop=224; numbers from 1 to 8192"),
        ("crop=8193", "crop=8193", "crop=224; numbers from 1 to 8192"),
        ("crop=2e2", "crop=2e2", "crop=224; numbers from 1 to 8192"),
        ("mean=0.5,0.4,0.3", "0.4", "numbers are separated by /: mean=0.5/0.5/0.5"),
        ("mean=nan", "mean=nan", "mean=0.5/0.5/0.5; numbers from -1e+30 to 1e+30"),
        ("std=1/0", "std=1/0", "std=0.5/0.5/0.5; numbers from 1e-30 to 1e+30"),
        ("std=1/x", "std=1/x", "std=0.5/0.5/0.5; numbers from 1e-30 to 1e+30"),
    ],
)
def test_a_word_that_no_recipe_has_is_refused_with_what_was_meant(text, word, hint):
    with pytest.raises(RequestError) as caught:
        read_recipe(text)
    assert (caught.value.message, caught.value.hint) == (
        f"`preprocess` cannot read {word!r}",
        hint,
    )


def test_a_word_given_twice_is_refused():
    with pytest.raises(RequestError, match="`preprocess` has fit twice"):
        read_recipe("fit=crop,fit=stretch")
