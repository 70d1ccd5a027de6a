"""``hookcli compare --pictures``: which calls are drawn, against the pictures of saved runs."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest

from hookcli.comparison.worst_calls import WorstCalls
from hookcli.distance.judge import CallPair, CallTensor, Judge
from hookcli.distance.metrics import measure_arrays
from hookcli.distance.tolerance import Tolerance
from hookcli.records.layouts import Layout
from tests.comparison.test_own_errors import POINT

# The pixels 1, -1 and 2 become 2, -2 and 4 in ``a``; the ReLU writes over them.
NETS = (
    POINT
    + """
class Net(nn.Module):
    def __init__(self, a=2.0, b=3.0):
        super().__init__()
        self.a, self.b = point(a), point(b)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.b(self.relu(self.a(x)) + 0)


class Renamed(Net):
    def __init__(self):
        super().__init__(3.0)
        self.stem = self.a
        del self.a

    def forward(self, x):
        return self.b(self.relu(self.stem(x)) + 0)


class Windows(Net):
    '''Each row of pixels becomes an image of its own.'''

    def __init__(self):
        super().__init__()
        self.rows = nn.Identity()

    def forward(self, x):
        return self.rows(self.a(x).permute(2, 1, 0, 3) + 0).mean((0, 2, 3))[None]


class Fails(Net):
    '''Takes no pixels above 50.'''

    def forward(self, x):
        x = self.relu(self.a(x))
        if x.max() > 100:
            raise ValueError("too bright")
        return self.b(x + 0)


"""
)
PIXELS = np.array([[[1, -1, 2]], [[2, 3, -1]], [[-2, 1, 1]]], "f4")


@pytest.fixture(autouse=True)
def nets():
    Path("nets.py").write_text(NETS)
    np.save("ant.npy", PIXELS)
    np.save("bee.npy", 100 * PIXELS)


@pytest.fixture
def compare(run):
    """Run ``compare --pictures p``, and return the page and the names of the pictures."""

    def command(net, *words, images=("ant.npy",), code=7):
        plain = () if "--layers" in words else ("--layers", "leaf")
        plain += ("--device", "cpu", "--pictures", "p")
        ended = run("compare", f"nets.py:{net}", *images, *plain, *words)
        assert ended.code == code, ended.err
        page = Path("p/report.html").read_text()
        return page, sorted(file.name for file in Path("p").glob("*.png"))

    return command


def test_pictures_are_those_of_two_saved_runs(run, compare):
    """Both commands find the worst images and calls in their own way."""
    edit = "a{1}:scale=1.5"
    images = ("ant.npy", "bee.npy")
    saved = ("--layers", "leaf", "--save", "tensors", "--grids", "none", "--device", "cpu")
    for name, words in (("one", ()), ("two", ("--edit", edit))):
        assert run("inspect", "nets.py:Net", *images, *saved, "-o", name, *words).code == 0
    assert run("diff", "one", "two", "--pictures", "d").code == 7
    _, files = compare("Net", "--against", f"edit={edit}", images=images)
    assert files == ["01_a.png", "02_relu.png", "03_b.png"]
    for file in files:
        assert Path("p", file).read_bytes() == Path("d", file).read_bytes(), file


def test_the_worst_image_of_a_call_is_drawn(compare):
    """More than 1 of bee is cut off, -2 of -200; of ant, -1 of -2 in the same places."""
    words = ("--against", "edit=a:clamp=-3:3", "--layers", "a")
    page, files = compare("Net", *words, images=("bee.npy", "ant.npy"))
    assert files == ["01_a.png"]
    assert "channel 1:  -200 to 600,  up to 597 apart" in page
    assert "largest difference 597, image bee" in page
    page, _ = compare("Net", *words, images=("ant.npy", "bee.npy"))
    assert "channel 1:  -200 to 600,  up to 597 apart" in page


def test_calls_that_the_comparison_does_not_list_are_not_drawn(compare):
    """With --blame, all calls are measured, and the culprit has a row."""
    words = ("--against", "edit=a:scale=1.5", "--layers", "b", "--blame")
    assert compare("Net", *words)[1] == ["01_b.png"]


def test_an_image_on_which_b_fails_is_not_drawn(compare):
    """a gives up to 900 for bee before B fails, and differs as much as for ant."""
    words = ("--against", "model=nets.py:Fails", "--against", "edit=a:scale=1.5")
    words += ("--on-error", "skip")
    page, files = compare("Net", *words, images=("bee.npy", "ant.npy"))
    assert files == ["01_a.png", "02_relu.png", "03_b.png"]
    assert "channel 1:  -3 to 9,  up to 3 apart" in page
    assert "to 900" not in page


def test_calls_that_are_paired_by_order_are_drawn(compare):
    words = ("--against", "model=nets.py:Renamed", "--match", "order")
    page, files = compare("Net", *words)
    assert files == ["01_a.png", "02_relu.png", "03_b.png"]
    assert "<h3>a / stem <span" in page
    assert "<h1>nets.py:Net and nets.py:Renamed: B against A</h1>" in page
    assert "channel 2:  -6 to 3,  up to 2 apart" in page


def test_windows_of_an_image_are_drawn_as_bars(run):
    """A map of the first window would be no picture of the image."""
    np.save("cow.npy", np.arange(36, dtype="f4").reshape(3, 4, 3))
    words = ("--layers", "rows", "--against", "edit=a:scale=2", "--device", "cpu")
    assert run("compare", "nets.py:Windows", "cow.npy", *words, "--pictures", "p").code == 7
    page = Path("p/report.html").read_text()
    assert "no spatial form: a bar is the mean of a channel" in page


def offer(worst, judge, name, index, a, b):
    """Offer a call with the tensors a and b, and return its pair."""
    tensor = CallTensor(name, "Linear", a.shape, "float32")
    pair = CallPair("ant", tensor, tensor, measure_arrays(a, b))
    worst.offer(judge.judge(pair), index, Layout("NC", 1), a, b)
    return pair


@pytest.mark.parametrize("order", [range(40), reversed(range(40))], ids=["as in A", "backwards"])
def test_of_many_calls_only_the_tensors_of_thirteen_are_kept_and_then_none(order):
    """The one that A runs first differs least, and B may run it last."""
    worst, judge = WorstCalls(), Judge(Tolerance(), ("float32",))
    alive, pairs = {}, []
    worst.start()
    for index in order:
        a = np.ones((1, 4), "f4")
        b = a + np.float32(1 + index)
        alive[index] = weakref.ref(a)
        pairs.append(offer(worst, judge, f"fc{index:02}", index, a, b))
        b[:] = 0  # the model may write over its tensor
        del a
    kept = sorted(index for index, each in alive.items() if each() is not None)
    assert kept == [0, *range(28, 40)]
    for pair in sorted(pairs, key=lambda pair: pair.a.call_id):
        judge.add(pair)
    worst.finish(judge.rows(), "ant")
    assert not any(each() is not None for each in alive.values())
    drawn = worst.choose_rows(judge.rows())
    assert [row.call_id for row in drawn] == ["fc00", *(f"fc{39 - n}" for n in range(11))]
    assert worst.maps_of(drawn[1]).compared.difference.tolist() == [[[40, 40, 40, 40]]]
