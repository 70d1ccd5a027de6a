"""The names of files are allowed on every system, also on Windows."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

import pytest

from hookcli.images.read import list_images
from hookcli.records.calls import Call, LayerInfo
from hookcli.store.locations.names import grid_name, is_run_file, is_usual, picture_file, seen_file

LONG = "x" * 51 + r"-[0-9a-f]{8}"


@pytest.mark.filterwarnings("ignore:pathlib.PurePath.is_reserved")  # Python 3.13 has another
@pytest.mark.parametrize(
    ("files", "keys"),
    [
        (["con.png", "lpt9.tar.png", "aux1.png"], ["con_", "lpt9_.tar", "aux1"]),
        (["con.png", "con_.png", "CON.jpg"], ["con_", "con-2", "CON-3"]),
        (["a:b.png", r"C:\photos\cat.png", "a|b?.png"], ["a_b", "C_photos_cat", "a_b-2"]),
        (["cat..png", "Cat.png", " cat. .png"], ["cat", "Cat-2", "cat-3"]),
        (["x" * 250 + ".png", "x" * 249 + ".png"], [LONG, LONG]),
    ],
)
def test_the_key_of_an_image_is_the_name_of_a_file_on_every_system(files, keys):
    found = [image.key for image in list_images(files)]
    assert len(found) == len({key.lower() for key in found})
    for key, expected in zip(found, keys, strict=True):
        assert re.fullmatch(expected, key)
        assert is_run_file(seen_file(key))
        assert is_usual(seen_file(key))
        assert not PureWindowsPath(f"{key}.jpg").is_reserved()


def test_a_path_in_a_run_folder_has_at_most_180_characters():
    layer = LayerInfo("block." * 50, "Conv2d")
    call = Call(layer, 12, order=1000, output_key="y" * 50, side="grad_output")
    key = list_images(["x" * 250])[0].key
    file = picture_file("attention", key, grid_name(call))
    assert is_run_file(file)
    assert 150 < len(file) <= 180
    assert is_usual(file)
    assert is_usual(file.replace(".png", ".maps.png"))
    assert not any(map(is_usual, (file.replace("block", "blocks"), file.replace("x", "xx"))))


@pytest.mark.parametrize(
    "name",
    [
        r"grids/..\..\x/001_conv1.png",
        "seen/C:x.jpg",
        "grids/.. /001_conv1.png",
        r"records.parquet/..\x.parquet",
    ],
)
def test_a_name_that_leads_elsewhere_on_windows_is_no_file_of_a_run(name):
    assert not is_run_file(name)
