"""``hookcli.models``: the models that hookcli knows by name, from Python."""

from __future__ import annotations

import pytest

import hookcli
from hookcli import HookcliError
from hookcli.cli.completion import names_file


def test_models_are_listed_and_nothing_is_saved_for_completion():
    found = hookcli.models("resnet1*")
    assert [row.name for row in found.rows] == ["resnet101", "resnet152", "resnet18"]
    assert found.document().models == found.rows
    assert str(found.table()).startswith("| model | task |")
    assert not names_file().exists()


def test_a_download_of_a_source_is_refused_in_words_of_python():
    with pytest.raises(HookcliError, match="`fetch` takes a whole name, without `source`"):
        hookcli.models("resnet18", source="timm", fetch=True)
