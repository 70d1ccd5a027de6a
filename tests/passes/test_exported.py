"""Tests of the check of exported programs, with archives that these tests make."""

import json
import zipfile
from pathlib import Path

import pytest
import torch

from hookcli.errors import ModelError
from hookcli.passes.exported import check_archive, load_program
from tests.two_directories import members_of, saved, with_two_directories

WEIGHT = {"path_name": "weight_0", "use_pickle": False}


class Touch:
    """An object whose pickle creates a file when it is loaded."""

    def __reduce__(self):
        return Path.touch, (Path("touched"),)


def index(**entries):
    return json.dumps({"config": entries})


def make(members):
    with zipfile.ZipFile("net.pt2", "w") as archive:
        for name, content in (("version", "3"), *members):
            archive.writestr(f"net/{name}", content)
    return Path("net.pt2")


def refuse(*members):
    with pytest.raises(ModelError) as caught:
        load_program(make(members))
    assert not Path("touched").exists()
    return caught.value.message


def test_an_archive_of_tensors_is_allowed():
    weights = ("data/weights/model_weights_config.json", index(weight=WEIGHT))
    samples = ("data/sample_inputs/model.pt", saved(((torch.ones(2),), {})))
    file = make([weights, samples, ("data/weights/weight_0", b"1234")])
    with file.open("rb") as stream:
        check_archive("net.pt2", stream)


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


@pytest.mark.parametrize("suffix", ["pt", "json"])
def test_an_archive_without_a_folder_is_checked_like_another(suffix):
    with zipfile.ZipFile("net.pt2", "w") as archive:
        archive.writestr("version", "6")
        archive.writestr(f"serialized_state_dict.{suffix}", saved(Touch()))
    with pytest.raises(ModelError, match="holds a pickled object, in serialized_state_dict"):
        load_program(Path("net.pt2"))
    assert not Path("touched").exists()


@pytest.mark.parametrize("content", ["[1]", '{"config": [1]}', "{", '{"config": {"a": 1}}'])
def test_a_damaged_index_is_refused(content):
    message = refuse(("data/weights/model_weights_config.json", content))
    assert message.startswith("'net.pt2' is damaged, or no exported program: ")


def test_a_missing_file_is_named():
    with pytest.raises(ModelError, match=r"cannot read 'no\.pt2': No such file"):
        load_program(Path("no.pt2"))


def test_a_program_that_only_torch_reads_is_refused():
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(1),)), "net.pt2")
    good = members_of(Path("net.pt2").read_bytes())
    bad = [(name, saved(Touch()) if name.endswith("/model.pt") else each) for name, each in good]
    Path("net.pt2").write_bytes(with_two_directories(good, bad))
    assert members_of(Path("net.pt2").read_bytes()) == good  # as zipfile reads it
    with pytest.raises(ModelError, match="may have a second directory"):
        load_program(Path("net.pt2"))
    assert not Path("touched").exists()
