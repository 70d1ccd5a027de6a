"""Tests of the check of exported programs, with archives that these tests make."""

import io
import json
import zipfile
from pathlib import Path

import pytest
import torch

from hookcli.errors import ModelError
from hookcli.passes.program_archive import check_archive

WEIGHT = {"path_name": "weight_0", "use_pickle": False}


class Touch:
    """An object whose pickle creates a file when it is loaded."""

    def __reduce__(self):
        return Path.touch, (Path("touched"),)


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def index(**entries):
    return json.dumps({"config": entries})


def make(members):
    with zipfile.ZipFile("net.pt2", "w") as archive:
        for name, content in members:
            archive.writestr(f"net/{name}", content)
    return Path("net.pt2")


def refuse(*members):
    with pytest.raises(ModelError) as caught:
        check_archive(make(members))
    assert not Path("touched").exists()
    return caught.value.message


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_an_archive_of_tensors_is_allowed():
    weights = ("data/weights/model_weights_config.json", index(weight=WEIGHT))
    samples = ("data/sample_inputs/model.pt", saved(((torch.ones(2),), {})))
    check_archive(make([weights, samples, ("data/weights/weight_0", b"1234")]))


def test_a_pickled_sample_input_is_refused_without_loading_it():
    assert refuse(("data/sample_inputs/model.pt", saved(Touch()))) == (
        "'net.pt2' holds a pickled object, in net/data/sample_inputs/model.pt, "
        "and loading it would run its code"
    )


def test_a_member_is_checked_whatever_the_case_of_its_name():
    assert "holds a pickled object" in refuse(("DATA/sample_inputs/Model.PT", saved(Touch())))


@pytest.mark.parametrize(
    "entry",
    [WEIGHT | {"use_pickle": True}, {"path_name": "custom_obj_0"}, {"path_name": "opaque_obj_1"}],
)
def test_an_index_that_asks_for_pickle_is_refused(entry):
    message = refuse(("data/constants/model_constants_config.json", index(one=WEIGHT, two=entry)))
    assert "holds a pickled object, according to net/data/constants/" in message


def test_a_compiled_library_is_refused():
    assert "holds a compiled library" in refuse(("data/aotinductor/model/model.so", b""))


def test_two_members_of_one_name_are_refused():
    two = [("data/weights/a.pt", saved(torch.ones(1))), ("data/weights/A.pt", saved(Touch()))]
    assert refuse(*two) == (
        "'net.pt2' is damaged, or no exported program: several members have the same name"
    )


def test_an_archive_without_a_folder_is_checked_like_another():
    with zipfile.ZipFile("net.pt2", "w") as archive:
        archive.writestr("version", "6")
        archive.writestr("serialized_state_dict.pt", saved(Touch()))
    with pytest.raises(ModelError, match=r"holds a pickled object, in serialized_state_dict\.pt"):
        check_archive(Path("net.pt2"))


@pytest.mark.parametrize("content", ["[1]", '{"config": [1]}', "{", '{"config": {"a": 1}}'])
def test_a_damaged_index_is_refused(content):
    message = refuse(("data/weights/model_weights_config.json", content))
    assert message.startswith("'net.pt2' is damaged, or no exported program: ")


def test_a_missing_file_is_an_error_of_the_system():
    with pytest.raises(FileNotFoundError):
        check_archive(Path("no.pt2"))
