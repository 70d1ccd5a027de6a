import copy
import gc
import hashlib
import pickle
import random
import re
import shutil
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import nn

import hookcli
from hookcli.plan import check
from hookcli.store.locations import storage
from hookcli.verbs import memory

CALLS = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(4, 5)
        self.fails = None

    def forward(self, pixels):
        if self.fails is not None and not torch.is_grad_enabled():
            raise self.fails
        return self.fc(self.drop(self.norm(self.conv(pixels))).mean((2, 3)))


@pytest.fixture
def model():
    made = Net().train()
    made.conv.weight.requires_grad_(False)
    made.fc.weight.grad = torch.ones_like(made.fc.weight)
    made.norm.register_forward_hook(lambda *_: CALLS.append(1))
    CALLS.clear()
    return made


@pytest.fixture
def picture():
    return Image.fromarray(np.arange(12 * 10 * 3, dtype="uint8").reshape(12, 10, 3))


def state(model):
    modules = [
        (name, each.training, len(each._forward_hooks)) for name, each in model.named_modules()
    ]
    tensors = [
        (
            *(name, id(each), each.data_ptr(), each.stride(), each.dtype, each.requires_grad),
            None if each.grad is None else (id(each.grad), each.grad.sum().item()),
            hashlib.sha256(each.detach().numpy().tobytes()).hexdigest(),
        )
        for name, each in [*model.named_parameters(), *model.named_buffers()]
    ]
    return modules, tensors, list_generators()


def list_generators():
    return [torch.random.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


OPTIONS = {"size": 8, "resize": 8, "grids": "none"}


@pytest.mark.parametrize(
    "more",
    [
        {"mode": "train", "edit": "conv:zero"},
        {"dtype": "float16"},
        {"layers": ["leaf"], "prune": "conv=0.5"},
    ],
)
@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_a_model_in_memory_is_as_before_when_a_verb_returns(model, picture, more):
    before = state(model)
    hookcli.inspect(model, picture, **OPTIONS, **more)
    assert state(model) == before
    assert CALLS or "prune" in more  # which works on a copy
    hookcli.gradients(model, picture, target=1, grids="none", size=8, resize=8)
    assert state(model) == before


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_other_weights_go_into_a_copy_of_a_model_in_memory(model, picture, tmp_path):
    torch.save(Net().state_dict(), tmp_path / "w.pth")
    same, kept = [], model.conv.weight.clone()
    model.norm.register_forward_hook(lambda *_: same.append(torch.equal(model.conv.weight, kept)))
    before = state(model)
    for more in ({"prune": "conv=0.5"}, {"weights": tmp_path / "w.pth"}):
        run = hookcli.inspect(model, picture, layers="conv", save="tensors", **OPTIONS, **more)
        assert state(model) == before
        plain = hookcli.inspect(model, picture, layers="conv", save="tensors", **OPTIONS)
        assert np.abs(run["conv"] - plain["conv"]).max() > 0.01
    assert same
    assert all(same)


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt()])
@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_a_model_in_memory_is_as_before_after_an_error_and_ctrl_c(model, picture, error):
    model.fails = error
    before = state(model)
    expected = hookcli.HookcliError if isinstance(error, ValueError) else KeyboardInterrupt
    with pytest.raises(expected):
        hookcli.inspect(model, picture, **OPTIONS)
    assert state(model) == before


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_a_picture_has_the_same_values_from_a_file_pillow_and_an_array(model, picture, tmp_path):
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    picture.save(tmp_path / "p.png", exif=exif)
    picture = Image.open(tmp_path / "p.png")
    pixels = np.asarray(ImageOps.exif_transpose(picture))
    images = [picture, tmp_path / "p.png", pixels, np.clip((pixels - 0.3) / 255, 0, 1)]
    run = hookcli.inspect(model, images, layers="conv", save="tensors", **OPTIONS)
    assert [image.key for image in run.result.images] == ["image-0", "p", "image-1", "image-2"]
    assert np.abs(run["conv"] - run["conv"][0]).max() < 1e-6
    run["conv"][:] = np.inf  # the array is the caller's
    assert np.isfinite(run["conv"]).all()


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_each_row_of_a_tensor_is_the_input_of_the_network(model):
    rows = torch.randn(2, 3, 6, 7)
    run = hookcli.inspect(model, rows, layers="conv", save="tensors", grids="none")
    with torch.no_grad():
        expected = model.conv(rows).numpy()
    assert [image.key for image in run.result.images] == ["image-0", "image-1"]
    assert np.abs(run["conv"] - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (np.zeros((4, 4, 7), "uint8"), "4x4x7 of uint8"),
        (np.zeros((4, 4), "int32"), "4x4 of int32"),
        (np.full((4, 4, 3), 2.0), "4x4x3 of float64"),
        (np.full((4, 4, 3), np.nan), "4x4x3 of float64"),
        (torch.zeros(1, 3, 4, 4, dtype=torch.int64), "1x3x4x4 of int64"),
        (torch.zeros(1, 3, 0, 4), "1x3x0x4 of float32"),
        (torch.zeros(1, 3, 4, 4).to_sparse(), "1x3x4x4 of sparse_coo"),
        (object(), "cannot be a object"),
    ],
)
def test_an_array_that_is_no_picture_is_refused_with_its_shape_and_dtype(model, thing, said):
    with pytest.raises(hookcli.HookcliError, match=said):
        hookcli.inspect(model, [thing], **OPTIONS)


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_without_a_folder_nothing_is_written_and_the_page_holds_its_pictures(
    model, picture, tmp_path
):
    run = hookcli.inspect(model, picture, layers="conv", size=8, resize=8)
    assert not any(tmp_path.iterdir())
    assert run.files["layers.csv"].startswith(b"order,")
    assert run.page.path is None
    assert 'src="data:image/png;base64,' in run.page.html


def test_what_needs_files_refuses_things_in_memory(model, picture):
    with pytest.raises(hookcli.HookcliError, match="`resume` continues a run"):
        hookcli.inspect(model, picture, **OPTIONS, resume=True)


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_a_large_run_needs_a_folder_before_the_images_run(model, picture, monkeypatch):
    monkeypatch.setattr(check, "_MOST_IMAGES", 1)
    with pytest.raises(hookcli.HookcliError, match=r"2 images .* too much for memory"):
        hookcli.inspect(model, [picture, picture], **OPTIONS)
    assert CALLS == []


def test_a_picture_of_pillow_may_have_any_mode(model, picture):
    pictures = [picture.convert(mode) for mode in ("1", "LA", "P", "RGBA", "CMYK", "HSV")]
    run = hookcli.inspect(model.eval(), pictures, layers="conv", **OPTIONS)
    assert len(run.result.images) == 6


def test_random_weights_of_a_model_in_memory_are_refused(model, picture):
    with pytest.raises(hookcli.HookcliError, match="a model in memory has its weights"):
        hookcli.inspect(model, picture, weights="random", **OPTIONS)


def test_the_other_model_of_a_comparison_keeps_its_dtype(model, picture):
    other = copy.deepcopy(model.eval()).bfloat16()
    for words in (other, {"model": other}):
        rows = hookcli.compare(model, picture, against=words, size=8, resize=8).document().layers
        assert {row.other_dtype for row in rows} == {"bfloat16"}


def test_the_files_of_a_run_in_memory_go_with_what_refers_to_them(model, picture):
    def list_files():
        return list(storage.list_files(memory._ROOT))

    gc.collect()
    before = list_files()  # errors of other tests may still refer to some
    run = hookcli.inspect(model.eval(), picture, layers="conv", save="tensors", **OPTIONS).run
    assert run["conv"].shape == (1, 4, 6, 6)
    del run
    with pytest.raises(hookcli.HookcliError):
        hookcli.gradients(model, picture, target=99, grids="none", size=8, resize=8)
    gc.collect()
    assert {*list_files()} <= {*before}


def test_equal_calls_of_things_in_memory_write_equal_files_that_name_no_memory(model, picture):
    one, two = (
        hookcli.inspect(
            model.eval(), [picture, picture.rotate(90)], layers="leaf", size=8, save="tensors"
        )
        for _ in range(2)
    )
    assert one.files == two.files
    manifest = one.run.manifest
    assert manifest["command"] is None
    assert manifest["options"][:3] == ["inspect", "--layers", "leaf"]
    assert manifest["model"]["name"] == "Net in memory"
    assert [image["file"] for image in manifest["images"]] == ["image-0", "image-1"]
    assert all(each["sha256"] for each in (manifest["model"], *manifest["images"]))
    assert not [name for name, data in one.files.items() if b"memory:/" in data]
    assert (one.document().command, one.document().run_folder) == (None, "")


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_documents_and_pages_of_all_verbs_name_no_folder_in_memory(model, picture):
    images = [picture, *(picture.rotate(angle) for angle in (90, 180, 270))]
    run = hookcli.inspect(model.eval(), images, layers="conv,norm", save="tensors", **OPTIONS)
    outcomes = [
        hookcli.gradients(model, picture, target=1, cam="norm", size=8, resize=8),
        hookcli.ablate(model, picture, layers="conv", size=8, resize=8),
        hookcli.compare(model, picture, against="dtype=bfloat16", size=8, resize=8),
        hookcli.layers(model, size=8),
        hookcli.diff(run, run),
        *(each(run, layers="norm") for each in (hookcli.places, hookcli.map)),
        hookcli.probe(run, labels=["a", "b"] * 2, layers="norm", folds=2),
        hookcli.similarity(run, run),
    ]
    for outcome in outcomes:
        assert "memory:/" not in f"{outcome.document()} {outcome.notes} {outcome.table()}"
        assert not [n for n, data in outcome.files.items() if b"memory:/" in bytes(data)]
        assert re.fullmatch(
            r"<\w+(: \d+ rows?| of Net in memory: \d+ calls of 1 image)>", repr(outcome)
        )
    assert repr(run) == "<Inspection of Net in memory: 2 calls of 4 images>"
    assert repr(run.page) == "Page(name='report.html')"
    golden = hookcli.golden(run.run)
    assert "memory:/" not in f"{golden.golden}"
    assert hookcli.diff(golden, run).exit_code == 0
    with pytest.raises(hookcli.HookcliError, match=r"^no tensor of 'fc' was saved\n"):
        run["fc"]
    assert repr(run.run).startswith("Run(memory, 4 images")


def test_like_chooses_the_preprocessing_of_a_model_in_memory(model, picture):
    def describe(**more):
        run = hookcli.inspect(model.eval(), picture, layers="conv", grids="none", **more)
        return run.result.model, [note.text for note in run.notes if note.level == "note"]

    info, notes = describe(like="inception_v3")
    assert "resized to 342 pixels" in info.preprocessing
    assert notes == []
    info, notes = describe()
    assert "mean 0.485" in info.preprocessing
    assert [note.partition(", so ")[2] for note in notes] == [
        "they are prepared as for ImageNet: `like=MODEL` prepares them as for another model"
    ]
    assert describe(mean=(0, 0, 0), std=(1, 1, 1))[1] == []


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_mistakes_of_python_are_one_line_in_words_of_python(model, picture, tmp_path):
    def refusal(do):
        with pytest.raises(hookcli.HookcliError) as caught:
            do()
        return f"{caught.value}: {caught.value.hint}"

    run = hookcli.inspect(model, picture, **OPTIONS, out=tmp_path / "run")
    assert [note.text.partition(": ")[2] for note in run.notes if note.level == "warning"] == [
        "`mode='as-made'` runs it as it was made"
    ]
    assert refusal(lambda: hookcli.load_run(run)) == (
        "load_run takes a folder, not Inspection: "
        "an outcome of `hookcli.inspect` has its run: OUTCOME.run"
    )
    assert refusal(lambda: hookcli.map(run)).endswith(
        "saved no tensors: make the run again, with `save='tensors'` and `pool='mean'`"
    )
    with torch.inference_mode():
        frozen = Net().eval()
    said = refusal(lambda: hookcli.gradients(frozen, picture, target=1, size=8, resize=8))
    assert said == (
        "Net in memory was made in inference mode, in which it takes no gradients: "
        "make it outside of torch.inference_mode()"
    )
    page = run.page
    shutil.rmtree(tmp_path / "run")
    assert refusal(lambda: page.html).startswith(f"cannot read '{tmp_path}/run/report.html': No")


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_a_model_may_be_one_of_several_differences(model, picture):
    other, against = Net().eval(), {"model": model, "threads": 1, "prune": "fc=0.5"}
    before = state(model)
    found = hookcli.compare(other, picture, against=against, size=8, resize=8)
    assert "model=Net 2 in memory, threads=1" in found.document().b
    assert state(model) == before


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_a_model_in_its_own_dtype_is_compared_with_float32(picture):
    model = Net().eval().bfloat16()
    before = [each.clone() for each in model.parameters()]
    found = hookcli.compare(model, picture, against="dtype=float32", size=8, resize=8)
    assert 0 < found.rows[0].max_abs < 0.1
    assert all(map(torch.equal, before, model.parameters()))


def test_a_table_is_readable_and_a_notebook_shows_no_empty_column(model):
    table = hookcli.layers(model, size=8).table()
    assert repr(table).startswith("| # | call | type |")
    assert "traps" in repr(table)
    html = table._repr_html_()
    assert ">traps<" not in html
    assert re.search(r'<td style="[^"]*text-align:left"> *conv<', html)
    assert re.search(r'<td style="[^"]*text-align:right">112<', html)


def test_a_result_prints_its_table_and_names_what_it_has(model, picture):
    run = hookcli.inspect(model.eval(), picture, layers="conv")
    assert "| 1 | conv" in str(run)
    assert run.stats["conv"] is run.rows[0]
    run.page.save("page.html")
    assert Path("page.html").read_text() == run.page.html
    with pytest.raises(AttributeError, match=r"no attribute 'layers'; it has .*\brows, run,"):
        run.layers  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'load'; there are .*\bload_run, insp"):
        hookcli.load  # noqa: B018
    assert {"inspect", "load_run", "capture"} <= set(dir(hookcli))


def test_python_shows_the_hint_of_an_error_below_the_traceback(model, picture):
    with pytest.raises(hookcli.HookcliError) as raised:
        hookcli.inspect(model, picture, layer="conv")
    lines = "".join(traceback.format_exception(raised.value)).splitlines()
    assert lines[-1].startswith("hint: did you mean layers")
    raised.value.add_note("in the third job")
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301
    for error in (raised.value, again):
        assert traceback.format_exception(error)[-2:] == [f"{lines[-1]}\n", "in the third job\n"]


def test_threads_take_turns_with_the_same_model_in_memory(model, picture):
    inside = []

    def enter(*_):
        inside.append(+1)
        time.sleep(0.05)
        assert sum(inside) == 1
        inside.append(-1)

    model.eval().norm.register_forward_hook(enter)
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(hookcli.inspect, model, picture, **OPTIONS) for _ in range(2)]
    assert [each.result().exit_code for each in found] == [0, 0]


def test_an_error_of_a_temporary_run_names_the_model(picture):
    with pytest.raises(hookcli.HookcliError, match="the run of Idle in memory saved no tensors"):
        hookcli.map(Idle().eval(), [picture] * 3, size=8, layers="all")


class Idle(nn.Conv2d):
    """A convolution with a layer that never runs, and without channels in its output."""

    def __init__(self):
        super().__init__(3, 4, 3)
        self.idle = nn.Linear(1, 1)

    def forward(self, pixels):
        return super().forward(pixels)[:, :0]


def test_a_run_without_a_call_is_named_by_its_model(picture):
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.golden(Idle().eval(), [picture] * 3, size=8, layers="idle")
    told = "no layer that `layers` chooses ran in Idle in memory: idle: "
    assert caught.value.message.startswith(told)
    assert caught.value.hint == "choose others: `layers='all'` includes the model itself"


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda model, picture: hookcli.inspect(model, picture, like=model),
            "`like` cannot be a Net",
            "give the name of a model",
        ),
        (
            lambda model, picture: hookcli.inspect(model, picture, input={"facts": object()}),
            "`input` cannot have a object as 'facts'",
            "give a file .npy, a text or a number",
        ),
        (
            lambda model, picture: hookcli.inspect(model, picture, model_arg={"a": 1}),
            "a model in memory is made already",
            "leave out `model_arg`",
        ),
        (
            lambda model, picture: hookcli.compare(
                model, picture, against=hookcli.inspect(model, picture, size=8)
            ),
            "`against` cannot be a run",
            "compare runs with `hookcli.diff`",
        ),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(model, picture, call, message, hint):
    with pytest.raises(hookcli.HookcliError) as caught:
        call(model.eval(), picture)
    assert (caught.value.message, caught.value.hint) == (message, hint)
