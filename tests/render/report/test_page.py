"""The page of a run: what it says, what it lets in, and what it makes of names that mean harm."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from hookcli.outside.documents import DamagedError, convert
from hookcli.outside.escape import for_page, reversible
from hookcli.reading.run_files import open_files
from hookcli.records.report import FolderState, ReportDocument
from hookcli.render.report import contact
from hookcli.render.report import document as document_module
from hookcli.render.report import page as run_page
from tests.conftest import run_in

PHOTO = Path(__file__).parents[3] / "sample_images" / "cat.png"
GOLDEN = Path(__file__).parents[2] / "golden" / "page.html"
HOSTILE = "<script>alert(1)</script>\"'&#?% 🐈 \u202egnp.exe" + "x" * 200


def render_report(whole, folder=None):
    state = FolderState(missing=tuple(whole.get("missing", ())))
    read = folder and folder.read
    return run_page.render_report(convert(whole, ReportDocument), state, read)


def document(name="conv", file="cat.png", **more):
    row = {
        "order": 1, "call_id": name, "module_path": name, "module_type": "Conv2d", "call_index": 0,
        "side": "output", "output_key": "", "shape": [1, 2, 4, 4], "dtype": "float32",
        "layout": "NCHW", "mean": 0.5, "std": 1.5, "min": -1.0, "max": 2.0, "zero_fraction": 0.25,
        "nan_count": 0, "inf_count": 0, "dead_channels": 1, "channels": 2, "images": 1,
        "params": 54,
    }  # fmt: skip
    places = {"left": 10, "top": 20, "width": 8, "height": 8, "step_x": 12, "step_y": 25}
    grid = {
        "image": "cat", "call_id": name, "file": "grids/cat/001_conv.png", "size": [100, 60],
        "places": places | {"columns": 2}, "channels": [1, 0], "low": [-1.0, 0.0],
        "high": [2.0, 0.0], "mean": [0.5, 0.0], "spread": [1.5, 0.0],
    }  # fmt: skip
    prediction = {"measure": "probability", "category": name, "index": 3, "value": 0.125}
    image = {
        "key": "cat", "file": file, "width": 8, "height": 8, "sha256": "",
        "predictions": [prediction | {"box": None}], "note": "", "seen": "seen/cat.jpg",
    }  # fmt: skip
    finding = {"rule": "dead", "layer": name, "number": 0.5, "threshold": 0.2}
    model = {"name": "toy", "task": "own", "weights": "random (seed 0)", "trained": False}
    whole = {
        "command": ["hookcli", "inspect", "toy", file],
        "model": model | {"device": "cpu", "dtype": "float32"},
        "versions": {"hookcli": "0.1.0", "torch": "2", "torchvision": "0"},
        "images": [image],
        "skipped": [],
        "uncalled": [{"layer": name, "reason": "unused"}],
        "findings": [finding | {"sentence": f"1 of 2 of {name}"}],
        "layers": [row],
        "histograms": {name: [1, 4, 2]},
        "grids": [grid],
        "focus": None,
    }
    return whole | more


TRAINED = document()["model"] | {"trained": True}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def test_the_page_names_the_versions_that_count_and_what_was_overwritten():
    versions = {"hookcli": "0.1.0", "torch": "2", "torchvision": "0", "timm": ""}
    versions |= {"python": "3.11", "onnxruntime": "1.32"}
    page = Page(render_report(document(versions=versions, written={"conv": "by relu (ReLU)"})))
    text = " ".join(" ".join(page.text).split())
    assert "hookcli 0.1.0, torch 2, torchvision 0, onnxruntime 1.32" in text
    assert "Overwritten in place by relu (ReLU) after it returned" in text


def test_the_page_of_a_tiny_run_is_the_golden_one():
    page = render_report(document())
    if os.environ.get("HOOKCLI_REWRITE_GOLDEN"):
        GOLDEN.write_text(page, encoding="utf-8")
    assert page == GOLDEN.read_text(encoding="utf-8")


def test_names_that_mean_harm_are_text():
    page = Page(render_report(document(HOSTILE, HOSTILE)))
    scripts = page.all("script")
    assert [script.get("type") for script in scripts] == [
        "application/json",
        "application/json",
        None,
    ]
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    links = [a["href"] for a in page.all("a")]
    assert set(links) == {"#findings", "#layers", "#layer-0"}
    assert for_page(HOSTILE) in "".join(page.text)


def test_names_that_mean_harm_are_text_in_the_list_of_layers_too():
    row = document()["layers"][0]
    names = [HOSTILE, "a.b", "grad_output:c.d"]
    grid = document()["grids"][0] | {"call_id": HOSTILE}
    layers = [row | {"call_id": name} for name in names]
    text = render_report(document(layers=layers, grids=[grid]))
    listed = text.partition("<nav")[2].partition("</nav>")[0]
    assert texts(listed, "a") == [for_page(HOSTILE), "a.b", "c.d"]
    assert {tag for tag, _ in Page(listed).tags} == {"button", "span", "ol", "li", "a", "wbr"}


TURNED = 'a%20%41 "\u202eb\n'
SEEN = 'a%20%41 "\\u202eb\\n'


def all_named(name):
    name = reversible(name)
    whole = document(name, name)
    layer, finding = {"layer": name}, whole["findings"][0]
    image = whole["images"][0] | {"note": name}
    return whole | {
        "model": whole["model"] | {"name": name, "weights": name},
        "layers": [whole["layers"][0] | {"module_type": name}],
        "images": [image, image | {"key": "dog"}],
        "skipped": [{"file": name, "reason": name}],
        "uncalled": [layer | {"reason": name}],
        "findings": [finding | {"sentence": name, "images": ["cat"]}],
        "grids": [whole["grids"][0] | {"score": [1.0, 2.0]}],
        "focus": {"box": [1, 2, 3, 4], "seen": [0, 0, 1, 1]},
        "written": {name: name},
        "missing": [name],
        "top_images": {name: [{"channel": 1, "images": ["cat"], "values": [2.0]}]},
    }


def texts(page, tag):
    inside = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL)
    return [html.unescape(re.sub("<.*?>", "", each)) for each in inside]


def test_a_name_is_shown_as_it_is_with_what_turns_the_text_around_written_out():
    page = render_report(all_named(TURNED))
    tags = ("title", "h1", "h3", "dd", "button", "option", "td", "li", "p", "article", "a")
    assert [tag for tag in tags if not any(SEEN in text for text in texts(page, tag))] == []
    assert "\u202e" not in page
    assert "%25" not in page


def test_the_command_of_the_page_pasted_into_bash_gives_the_same_words():
    words = ["hookcli", "inspect", "two  'words'", TURNED, "100%\t\\", os.fsdecode(b"caf\xe9%41")]
    page = render_report(document(command=[reversible(word) for word in words]))
    (command,) = texts(page, "code")[:1]
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True
    )
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


def test_the_policy_lets_only_the_pages_own_script_run_and_nothing_be_fetched():
    text = render_report(document())
    policy = Page(text).all("meta")[1]["content"]
    assert policy.startswith("default-src 'none'; img-src 'self' file: data:;")
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]+';", policy)
    assert "http" not in policy


def test_the_picture_of_a_sheet_is_once_in_a_page_of_one_file(tmp_path):
    whole, keys = document(), ("cat", "dog", "elk")
    for color, key in enumerate(keys):
        for file in (f"sheets/{key}.png", f"seen/{key}.jpg"):
            (tmp_path / file).parent.mkdir(exist_ok=True)
            Image.new("RGB", (4, 4), (color, 0, 0)).save(tmp_path / file)
    row, grid, image = whole["layers"][0], whole["grids"][0], whole["images"][0]
    whole |= {
        "layers": [row, row | {"call_id": "last"}],
        "images": [image | {"key": key, "seen": f"seen/{key}.jpg"} for key in keys],
        "grids": [
            grid | {"image": key, "call_id": call, "file": f"sheets/{key}.png"}
            for key in keys
            for call in ("conv", "last")
        ],
    }
    text = render_report(whole, open_files(tmp_path))
    sheets = re.findall(r"data:image/png;base64,[A-Za-z0-9+/=]+", text)
    assert (len(sheets), len(set(sheets))) == (3, 3)
    assert text.count("data:image/jpeg") == 3


def many(count, **more):
    image = document()["images"][0] | {"seen": ""}
    images = [image | {"key": f"i{n}", "file": f"photos/i{n}.png"} for n in range(count)]
    return document(images=images, **more)


def found_in(*numbers, rule="nan"):
    finding = {"rule": rule, "layer": "conv", "number": 2.0, "threshold": 0.0, "sentence": "2 NaN"}
    return finding | {"images": [f"i{number}" for number in numbers]}


def tiles(text):
    sheet = text.partition('<ul class="contact"')[2].partition("</ul>")[0]
    names = re.findall("<bdi>(.*?)</bdi>", sheet)
    return dict(zip(names, Page(sheet).all("li"), strict=True))


def test_every_image_has_a_tile_that_opens_and_the_first_60_tiles_are_visible():
    text = render_report(many(100))
    seen = ["hidden" not in tile for tile in tiles(text).values()]
    assert seen == [True] * 60 + [False] * 40
    assert list(tiles(text)) == [f"i{number}.png" for number in range(100)]
    assert [each["data-panel"] for each in Page(text).all("template")] == [
        str(number) for number in range(100)
    ]


def test_a_finding_of_many_images_is_one_line_and_a_mark_on_each_of_them():
    findings = [found_in(2), found_in(0, 1, 2, rule="small")]
    text = render_report(many(4, findings=findings))
    lines = [" ".join(each.split()) for each in texts(text, "li")[:2]]
    assert lines == [
        "nan 2 NaN (2, threshold 0) to the layer show the image",
        "small 3 of 4 images: 2 NaN (2, threshold 0) to the layer show them",
    ]
    shown = {name: tile.get("data-findings") for name, tile in tiles(text).items()}
    assert shown == {"i0.png": "1", "i1.png": "1", "i2.png": "0 1", "i3.png": None}
    sheet = text.partition('<ul class="contact"')[2].partition("</ul>")[0]
    # a finding of more than half of all images is no mark of their own
    assert re.findall('class="(dot.*?)"', sheet) == ["dot", "dot", "dot own"]
    choices = texts(text.partition('id="image-finding"')[2].partition("</select>")[0], "option")
    assert choices[-2:] == ["nan, conv (1)", "small, conv (3)"]


def test_a_finding_with_200_images_may_have_more():
    text = render_report(many(201, findings=[found_in(*range(200))]))
    assert "<strong>200 or more of 201 images:</strong>" in text


@pytest.fixture
def most_20(monkeypatch):
    monkeypatch.setattr(contact, "MOST_THUMBNAILS", 20)


def test_a_page_of_too_many_images_shows_those_with_findings_first(most_20):
    named = [*range(1, 23), 24]
    whole = many(25, findings=[found_in(*named)])
    whole["images"][24]["seen"] = whole["images"][23]["seen"] = "seen/i.jpg"
    keys = [f"i{number}" for number in range(22)]
    whole["thumbnails"] = [{"file": "thumbnails/000000.jpg", "columns": 8, "images": keys}]
    text = render_report(whole)
    assert list(tiles(text)) == [f"i{number}.png" for number in (*range(1, 20), 24)]
    assert "20 of 25 images are shown" in text


def test_a_thumbnail_is_a_part_of_the_picture_that_the_run_says():
    thumbnails = [
        {"file": "thumbnails/000000.jpg", "columns": 2, "images": ["i0", "i1", "i2"]},
        {"file": "thumbnails/000001.jpg", "columns": 2, "images": ["i3"]},
    ]
    text = render_report(many(5, thumbnails=thumbnails))
    sheet = Page(text.partition('<ul class="contact"')[2].partition("</ul>")[0])
    drawn = [each for each in sheet.all("span") if each["class"].startswith("thumb")]
    assert [(each["class"], each.get("style")) for each in drawn] == [
        ("thumb t0", "--column: 0; --row: 0"),
        ("thumb t0", "--column: 1; --row: 0"),
        ("thumb t0", "--column: 0; --row: 1"),
        ("thumb t1", "--column: 0; --row: 0"),
        ("thumb whole", None),
    ]
    assert texts(text, "style")[1].splitlines() == [
        '.t0 { background-image: url("thumbnails/000000.jpg"); --columns: 2; }',
        '.t1 { background-image: url("thumbnails/000001.jpg"); --columns: 2; }',
    ]


MAPS = {"size": [4, 4], "own": [4, 4], "columns": 2}
HEADS = {"heads": 1, "patch_grid": [1, 1], "query_grid": [1, 1], "map_grid": [1, 1]}
PICTURES = {
    "grids[0].file": lambda name: {"grids": [document()["grids"][0] | {"file": name}]},
    "grids[0].maps.file": lambda name: {
        "grids": [document()["grids"][0] | {"maps": MAPS | {"file": name}}]
    },
    "heats[0].file": lambda name: {
        "heats": [{"image": "cat", "kind": "cam", "call_id": "conv", "file": name}]
    },
    "thumbnails[0].file": lambda name: {
        "thumbnails": [{"file": name, "columns": 2, "images": ["cat"]}]
    },
    "images[0].seen": lambda name: {"images": [document()["images"][0] | {"seen": name}]},
    "attention_maps[0].file": lambda name: {
        "attention_maps": [
            {"image": "cat", "call_id": "conv", "file": name, "is_thinned": False} | HEADS
        ]
    },
}
OUTSIDE = (
    *("../x.png", "/etc/x.png", "//host/share/x.png", "https://host/x.png", "grids\\x.png"),
    *("grids/x.png\n", "grids/%2e%2e/x.png", '"); } * { display: none; } .t9 { x: url("'),
)


@pytest.mark.parametrize("field", PICTURES)
def test_a_picture_outside_the_run_folder_is_refused_by_its_field(field):
    for name in OUTSIDE:
        with pytest.raises(DamagedError) as caught:
            convert(document(**PICTURES[field](name)), ReportDocument)
        assert str(caught.value) == f"{field}: expected the name of a file in the run folder"
    convert(document(**PICTURES[field]("grids/cat-2/001_a.b_c#1.png")), ReportDocument)


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["1.png", "a/1.png"], ["1.png", "a/1.png"]),
        (["/a/b/x/1.png", "/a/c.png"], ["b/x/1.png", "c.png"]),
        (["ab/1.png", "ac/1.png"], ["ab/1.png", "ac/1.png"]),
    ],
)
def test_a_tile_is_named_without_the_folders_that_all_images_share(files, names):
    whole = many(2)
    whole["images"] = [whole["images"][n] | {"file": file} for n, file in enumerate(files)]
    text = render_report(whole)
    assert re.findall("<bdi>(.*?)</bdi>", text) == names


@pytest.mark.parametrize(("count", "has_figures"), [(200, True), (201, False)])
def test_the_figures_of_channels_are_on_a_page_of_up_to_200_images(count, has_figures):
    whole = many(count)
    grid = whole["grids"][0]
    whole["grids"] = [grid | {"image": image["key"]} for image in whole["images"]]
    whole["grids"][2]["size"] = [300, 60]
    text = render_report(whole)
    held = [json.loads(each) for each in re.findall('data-pictures="\\d+">(.*?)<', text)]
    figures = (
        {name: grid[name] for name in ("low", "high", "mean", "spread")} if has_figures else {}
    )
    own = {"channels": grid["channels"]} | figures
    assert held[1] == {"pictures": [grid["file"]], "grids": [own], "form": 0}
    assert [each["form"] for each in held[:4]] == [0, 0, 1, 0]
    form = {"call": 0, "picture": 0, "size": grid["size"], "places": grid["places"]}
    forms = json.loads(re.search('id="data">(.*?)<', text)[1])["forms"]
    assert forms == [[form], [form | {"size": [300, 60]}]]


def test_only_a_trained_model_has_predictions_on_its_page():
    for whole in (document(), many(2)):
        words = ("Predictions</h", "12.5%<", "least certain")
        assert not any(word in render_report(whole) for word in words)
        assert "Predictions</h" in render_report(whole | {"model": TRAINED})


def test_an_image_of_which_nothing_is_said_has_the_reason():
    whole = document()
    images = [whole["images"][0] | {"predictions": []}]
    for task, said in (("detection", "Nothing was detected."), ("own", "The output is not of a")):
        page = render_report(whole | {"images": images, "model": TRAINED | {"task": task}})
        predictions = page.partition('class="predictions">')[2].partition("</div>")[0]
        assert texts(predictions, "p")[0].startswith(said)


def test_channels_that_fire_inside_the_box_are_ordered_by_their_score():
    grid = document()["grids"][0]
    scores = {4: 0.5, 0: -1.0, 3: 2.0, 7: 0.0, 9: None}
    grids = [
        grid | {"channels": list(scores), "score": list(scores.values())},
        grid | {"call_id": "late", "channels": [5], "score": [-0.5]},
    ]
    rows = [document()["layers"][0] | {"call_id": call} for call in ("conv", "late")]
    focus = {"box": [1, 2, 3, 4], "seen": [0, 0, 1, 1]}
    text = render_report(document(layers=rows, grids=grids, focus=focus))
    box = text.partition('<section id="focus">')[2].partition("</section>")[0]
    assert [" ".join(each.split()) for each in texts(box, "li")] == [
        "conv channel 9 not finite channel 3 2.00 channel 4 0.50",
        "late none fires more inside",
    ]


def test_layers_that_are_not_spatial_are_listed_with_the_reason():
    grid = document()["grids"][0] | {"places": None, "channels": []}
    row = document()["layers"][0] | {"layout": "NC"}
    text = " ".join(
        " ".join(Page(render_report(document(grids=[grid], layers=[row]))).text).split()
    )
    assert "Not spatial conv drawn as bars: one value per channel, without height and width" in text


def test_a_sheet_is_once_in_the_page_and_its_layers_lead_to_the_table():
    grids = [document()["grids"][0] | {"file": "sheets/cat.png"}]
    page = Page(render_report(document(grids=grids)))
    assert [img["src"] for img in page.all("img") if "src" in img] == [
        "seen/cat.jpg",
        "sheets/cat.png",
    ]
    assert [row["id"] for row in page.all("tr") if "id" in row] == ["layer-0"]
    assert page.all("article") == []


def test_the_images_that_fire_a_channel_most_are_those_of_the_page():
    channel = {"channel": 1, "images": ["i2", "i0", TURNED], "values": [None, 2.50004, 1.0]}
    text = render_report(many(3, top_images={"conv": [channel]}))
    (held,) = re.findall('id="top">(.*?)<', text)
    assert json.loads(held) == [[0, [[1, [[2, None], [0, 2.5], [for_page(TURNED), 1.0]]]]]]


@pytest.mark.parametrize(
    ("file", "said", "link"),
    [
        ("sheets/{}.png", "All 10 sheets", "sheets/{}.png"),
        ("grids/{}/001_conv.png", "All 10 folders of grids", "grids/{}/"),
    ],
)
def test_a_page_of_too_many_images_links_to_all_pictures(monkeypatch, file, said, link):
    monkeypatch.setattr(document_module, "MOST_THUMBNAILS", 20)
    whole = document()
    image, grid = whole["images"][0], whole["grids"][0]
    keys = [f"i{number}" for number in range(21)]
    whole |= {
        "images": [image | {"key": key, "file": f"a b/{key}?.png", "seen": ""} for key in keys],
        "grids": [grid | {"image": key, "file": file.format(key)} for key in keys[:10]],
    }
    text = render_report(whole)
    section = text.partition('<details id="all-pictures">')[2].partition("</details>")[0]
    links = re.findall('<a href="(.*?)">(.*?)</a>', section)
    assert links == [(link.format(key), f"a b/{key}?.png") for key in keys[:10]]
    assert texts(section, "summary") == [said]
    assert "all-pictures" not in render_report(whole | {"images": whole["images"][:20]})


def test_images_that_the_page_does_not_show_are_named_by_their_keys(most_20):
    """Of 21 images the page shows those with a picture: the last one."""
    whole = many(21, ranked_images={"conv": {"each": 1, "images": [7, 20], "values": [2, None]}})
    whole["images"][20] |= {"seen": "seen/cat.jpg"}
    facts = unpacked(render_report(whole))
    assert facts == {"calls": [[0, 1, [1, 0], [2.0, None]]], "others": ["i7"]}


def unpacked(text):
    (packed,) = re.findall('id="ranked">(.*?)<', text)
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def drawn_of(*keys):
    return [document()["grids"][0] | {"image": key, "file": f"{key}.png"} for key in keys]


def options(text):
    return texts(text.partition('<select id="image">')[2].partition("</select>")[0], "option")


def test_only_images_with_pictures_can_be_chosen_and_the_first_of_them_is_shown():
    text = render_report(many(4, grids=drawn_of("i1", "i3")))
    assert options(text) == ["photos/i1.png", "photos/i3.png"]
    maps = text.partition('<section id="maps">')[2]
    assert Page(maps).all("img")[0]["src"] == "i1.png"


def deep(*layers, **more):
    known = document()["layers"][0]
    rows = [known | {"call_id": f"layer{n}", "order": n} | each for n, each in enumerate(layers)]
    return document(layers=rows, grids=[], findings=[], **more)


def captions(text):
    return re.findall('class="caption">(.*?)<', text)


def test_one_layer_has_no_chart_over_depth():
    assert 'id="depth"' not in render_report(deep({}))
    assert 'id="depth"' in render_report(deep({}, {}))


def test_an_empty_chart_is_replaced_by_the_reason():
    nothing = {"mean": 0.0, "std": 0.0, "params": 0, "zero_fraction": 0.0}
    assert captions(render_report(deep(nothing, nothing))) == [
        "all values of these layers are zero",
        "no value of these layers is exactly zero",
        "these layers have no parameters",
    ]
    assert captions(render_report(deep({}, nothing))) == [
        "mean, with one standard deviation up and down",
        "zeros, % of values",
        "parameters",
    ]


def test_gradients_that_are_all_zero_have_a_sentence_instead_of_a_chart():
    words = ["hookcli", "gradients", "toy", "cat.png"]
    none = {"side": "grad_output", "norm": 0.0, "ratio": None}
    text = render_report(deep(none, none, command=words))
    assert "No gradient is finite and larger than zero" in text
    assert 'class="plot"' not in text


TOP = {"channel": 0, "images": ["cat", "dog"], "values": [1.0]}
CONTRADICTIONS: dict[str, tuple[dict, str]] = {
    "2 images and 1 value": (
        {"top_images": {"conv": [TOP]}},
        "top images: 1 values of 2 images",
    ),
    "a picture of no layer": ({"layers": []}, "grids[0] shows 'conv', which is no layer"),
    "no columns": (
        {"thumbnails": [{"file": "thumbnails/000000.jpg", "columns": 0, "images": ["cat"]}]},
        "thumbnails[0].columns: expected `int` >= 1",
    ),
    "1 score of 2 tiles": (
        {"grids": [document()["grids"][0] | {"score": [1.0]}]},
        "1 scores of 2 tiles",
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_document_whose_parts_contradict_each_other_is_refused(what):
    changes, reason = CONTRADICTIONS[what]
    with pytest.raises(DamagedError) as caught:
        convert(document(**changes), ReportDocument)
    assert reason in str(caught.value)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("made")
    words = ("--weights", "random", "--size", "64", "--layers", "conv[1:2]", "-o", "run", "-q")
    assert run_in(home, "inspect", "resnet18", PHOTO, *words).code == 0
    return home


@pytest.fixture
def ran(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return Path("run")


def test_the_page_is_made_again_from_the_folder_without_torch(ran):
    before = (ran / "report.html").read_bytes()
    (ran / "report.html").unlink()
    code = (
        "import sys; from hookcli import __main__ as entry; sys.argv = ['hookcli', 'report', "
        "'run']\n"
        "code = entry._run(); assert not {'torch', 'PIL', 'numpy'} & set(sys.modules); "
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "run/report.html\n")
    assert (ran / "report.html").read_bytes() == before


def test_a_folder_that_is_no_run_or_not_complete_is_refused(ran, run):
    Path("empty").mkdir()
    assert run("report", "empty").err.startswith("error: 'empty' is not the folder of a run\n")
    assert run("report", "nowhere").code == 2
    (ran / "report.json").write_text("{")
    assert "is damaged" in run("report", "run").err
    (ran / "report.json").unlink()
    assert "is the folder of an unfinished run" in run("report", "run").err


@pytest.mark.parametrize("content", [b"[]", None])
def test_a_run_without_a_whole_manifest_is_said_to_be_incomplete(ran, run, content):
    manifest = ran / "manifest.json"
    if content is None:
        manifest.unlink()
    else:
        manifest.write_bytes(content)
    (ran / "report.html").unlink()  # nothing says any longer that it is the run's
    ended = run("report", "run")
    assert (ended.code, ended.out) == (0, "run/report.html\n")
    assert ended.err == "warning: 'run' has no complete manifest: the run is unfinished\n"
    assert "Incomplete." in texts((ran / "report.html").read_text(), "strong")


def test_a_page_that_is_not_known_to_be_the_runs_is_left_alone(ran, run):
    (ran / "manifest.json").unlink()
    (ran / "report.html").write_text("mine")
    ended = run("report", "run")
    assert (ended.code, ended.out) == (5, "")
    assert "error: 'run/report.html' was not written by this run" in ended.err
    assert (ran / "report.html").read_text() == "mine"


def test_a_link_in_the_place_of_the_page_is_left_alone(ran, run):
    (ran / "report.html").unlink()
    Path("keep.html").write_text("mine")
    (ran / "report.html").symlink_to("../keep.html")
    ended = run("report", "run")
    assert (ended.code, ended.out) == (5, "")
    assert (ran / "report.html").is_symlink()


def test_a_page_of_another_size_is_noted_in_the_manifest(ran, run):
    """So that it is not taken for one that somebody else changed."""
    assert run("report", "run", "--single-file").code == 0
    manifest = json.loads((ran / "manifest.json").read_bytes())
    assert manifest["sizes"]["report.html"] == (ran / "report.html").stat().st_size > 100_000
    assert run("golden", "run", "-o", "g.json").err.count("not as the run left it") == 0


def test_a_picture_and_a_table_that_are_not_as_the_run_left_them_are_named(ran, run):
    (ran / "seen/cat.jpg").write_bytes(b"short")
    warned = run("report", "run")
    assert warned.code == 0
    assert "warning: the folder is not as the run left it: seen/cat.jpg has 5 bytes" in warned.err
    (ran / "layers.csv").unlink()
    for words in (("golden", "run"), ("diff", "run", "run"), ("export", "run", "--to", "npy")):
        ended = run(*words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("error: the run in 'run' is damaged: layers.csv is missing\n")
    assert (
        "the folder is not as the run left it: layers.csv is missing (and 1 more)"
        in run("report", "run").err
    )


def test_resume_of_a_complete_run_names_what_is_gone(ran, run):
    words = ("--weights", "random", "--size", "64", "--layers", "conv[1:2]", "-o", "run", "-q")
    assert run("inspect", "resnet18", PHOTO, *words, "--resume").code == 0
    (ran / "seen/cat.jpg").unlink()
    ended = run("inspect", "resnet18", PHOTO, *words, "--resume")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines() == [
        "error: --resume: the run in 'run' is complete, but seen/cat.jpg is missing",
        "hint: start again with --overwrite, or choose another -o",
    ]


def test_a_file_of_any_name_is_on_the_page_that_is_made_again(run):
    name = os.fsdecode(b"50%41 caf\xe9.png")
    shutil.copy(PHOTO, name)
    words = ("--weights", "random", "--size", "64", "--layers", "conv1", "--grids", "none", "-q")
    assert run("inspect", "resnet18", name, *words, "-o", "run").code == 0
    files = [Path("run", file) for file in ("manifest.json", "report.json", "report.html")]
    before = [file.read_bytes() for file in files]
    held = [json.loads(data)["images"][0]["file"] for data in before[:2]]
    assert held == ["50%2541 caf%E9.png"] * 2
    assert run("report", "run", "--single-file").code == 0
    assert run("report", "run").code == 0
    assert [file.read_bytes() for file in files] == before
