"""What a type checker sees of hookcli in the code of others."""

from __future__ import annotations

from importlib import resources


def test_the_package_says_that_it_has_types():
    assert resources.files("hookcli").joinpath("py.typed").is_file()
