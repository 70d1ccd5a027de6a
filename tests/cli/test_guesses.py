"""What newcomers type on their first day, and what hookcli tells them to type instead."""

from __future__ import annotations

import re
import shlex

import pytest
from PIL import Image

from hookcli.__main__ import build_command
from hookcli.cli import guesses
from hookcli.verbs.subjects import COMMANDS

GUESSES = """\
2 | predict resnet18 cat.png | hookcli inspect resnet18 cat.png
2 | predict cat.png | hookcli inspect resnet18 cat.png
2 | view cat.png resnet18 | hookcli inspect resnet18 cat.png
2 | layers torchvision:resnet18 | write resnet18, without a prefix
2 | activations resnet18 | hookcli inspect resnet18 photo.jpg
2 | cam resnet18 cat.png --size 64 | hookcli gradients resnet18 --size 64 cat.png --cam 'conv[-1]'
2 | saliency resnet18 cat.png | hookcli gradients resnet18 cat.png --saliency
2 | attention vit_b_16 cat.png | hookcli inspect vit_b_16 cat.png --attention all
2 | features resnet18 photos | hookcli inspect resnet18 photos --save tensors --pool mean
2 | extract resnet18 cat.png | hookcli inspect resnet18 cat.png --save tensors
2 | nan net.py:make cat.png | hookcli inspect net.py:make cat.png --layers all --fail-on nan,inf
2 | prune resnet18 cat.png | hookcli inspect resnet18 cat.png --prune conv=0.3
2 | time resnet18 | hookcli layers resnet18 --measure
2 | profile net.py:make | hookcli layers net.py:make --measure
2 | summary resnet18 | hookcli layers resnet18
2 | umap resnet18 photos | hookcli map resnet18 photos
2 | onnx resnet18 cat.png | hookcli compare resnet18 cat.png --against onnx
2 | open | hookcli report RUN --open
2 | open hookcli-runs/mine | hookcli report hookcli-runs/mine --open
2 | help | hookcli COMMAND --help
2 | help inspect | hookcli inspect --help
2 | version | hookcli --version
2 | -v | everything is printed, unless -q is given; the version: hookcli --version
2 | list | hookcli models
2 | search resnet | hookcli models '*resnet*'
2 | download resnet18 | hookcli models resnet18 --fetch
2 | resume | the command of the run again, with --resume
2 | inspct resnet18 cat.png | hookcli inspect resnet18 cat.png
2 | grad resnet18 'my cat.png' | hookcli gradients resnet18 'my cat.png'
2 | resnet18 | hookcli layers resnet18
2 | resnet18 cat.png | hookcli inspect resnet18 cat.png
2 | timm:vit_base cat.png | hookcli inspect timm:vit_base cat.png
2 | cat.png | hookcli inspect resnet18 cat.png
2 | nonsense |
2 | inspect | hookcli inspect resnet18 photo.jpg
2 | layers | hookcli layers resnet18
2 | report | hookcli report hookcli-runs/resnet18-photo
2 | inspect resnet18 | hookcli inspect resnet18 photo.jpg; its layers alone: hookcli layers resnet18
2 | inspect cat.png | hookcli inspect resnet18 cat.png; its layers alone: hookcli layers resnet18
2 | inspect cat.png resnet18 | give 'resnet18' as the model, and 'cat.png' as an image
2 | inspect resnet18 cat.png --layers layer1 layer2 | several layers are one word: --layers layer1,layer2
2 | inspect resnet18 cat.png --layers last | list them with: hookcli layers MODEL
2 | inspect resnet18 cat.png --json | --format json
2 | inspect resnet18 cat.png --gpu | --device cuda
2 | inspect resnet18 cat.png --imgsz 320 | --size N
2 | inspect resnet18 cat.png --no-crop | --preprocess fit=letterbox, or fit=stretch
2 | inspect resnet18 cat.png --letterbox | --preprocess fit=letterbox
2 | compare resnet18 cat.png --bgr | --preprocess order=bgr
2 | gradients resnet18 cat.png --squash | --preprocess fit=stretch
2 | inspect resnet18 cat.png --no-antialias | --preprocess antialias=off
2 | inspect resnet18 cat.png --preprocessing | --preprocess RECIPE
2 | inspect resnet18 cat.png --random | --weights random
2 | inspect resnet18 cat.png --colourmap gray | --colormap
2 | inspect resnet18 cat.png --crop-pct 1 |
2 | inspect resnet18 cat.png --cam | hookcli gradients --cam has it
2 | inspect resnet18 cat.png --dtype fp16 | --dtype float16
2 | inspect resnet18 cat.png --save | --save tensors
2 | gradients resnet18 cat.png --cam | --cam 'conv[-1]'
2 | gradients resnet18 cat.png --target 281,207 | name each class: --target 281 --target 207
2 | layers resnet18 cat.png | hookcli layers resnet18, or with images: hookcli inspect resnet18 cat.png
2 | layers resnet18 --checkpoint w.pth |
2 | layers resnet18 --sort flop | --sort flops
2 | export run | --to npy
2 | sensitivity resnet18 a.jpg | --to int8
2 | probe resnet18 photos | --labels folders
2 | models hf | hookcli models --source hf
2 | diff resnet18 resnet34 | give a run's folder or a golden file; two models are compared with hookcli compare A IMAGE --against model=B
2 | compare resnet18 resnet34 cat.png | hookcli compare resnet18 cat.png --against model=resnet34
2 | compare a.py b.py cat.png | FILE.py:FUNCTION IMAGE --against model=FILE.py:FUNCTION
2 | compare resnet18 cat.png | --against weights=B.pth, model=B or dtype=D; two finished runs: hookcli diff A B
2 | compare resnet18 cat.png --against train | did you mean mode=train?
2 | compare resnet18 cat.png --against b.pth | did you mean weights=b.pth?
2 | compare a.py:make cat.png --against b.py:make | did you mean model=b.py:make?
2 | compare resnet18 cat.png --against resnet34 | did you mean model=resnet34?
2 | compare resnet18 cat.png --against fp16 | did you mean dtype=float16?
2 | compare resnet18 cat.png --against half | did you mean dtype=float16 or autocast=float16?
2 | compare resnet18 cat.png --against amp | did you mean autocast=float16 or autocast=bfloat16?
2 | compare resnet18 cat.png --against autocast | did you mean autocast=bfloat16?
2 | compare resnet18 cat.png --against twice | did you mean repeat?
2 | compare resnet18 cat.png --against determinism | did you mean repeat?
2 | compare resnet18 cat.png --against batch-size=8 | did you mean batch=7?
2 | compare resnet18 cat.png --against batch | did you mean batch=7?
2 | compare resnet18 cat.png --against seed=1 --against seed=2 | one run B at a time: compare twice
3 | inspect resnet18 nofile.png | give one or more image files, for example photo.jpg
4 | inspect resnet18 cat.png --weights imagenet | resnet18 has: IMAGENET1K_V1, DEFAULT, auto, pretrained, random, FILE
2 | layers resnet-18 | resnet18
2 | inspect -m resnet18 cat.png | the model is named without an option: hookcli inspect MODEL IMAGE...
2 | inspect resnet18 cat.png -w random | --weights WEIGHTS
2 | inspect resnet18 cat.png --save-tensors | --save tensors
2 | --list-models | hookcli models
2 | duplicates photos | hookcli map resnet18 PHOTOS
2 | inspect . resnet18 | give 'resnet18' as the model, and '.' as the folder
2 | layers openclip:ViT-B-32 | open_clip:ViT-B-32
2 | layers clip:RN50 | open_clip:RN50
2 | layers resnet | did you mean resnet18, resnet34, resnet50?
2 | layers vit_b_17 | did you mean vit_b_16, vit_l_16, vit_h_14?
2 | layers mask_rcnn | did you mean maskrcnn_resnet50_fpn, maskrcnn_resnet50_fpn_v2?
2 | layers dinov2-small | hf:facebook/dinov2-small
2 | layers clip-rn50 | did you mean hf:openai/clip-vit-base-patch32, hf:openai/clip-vit-base-patch16, hf:openai/clip-vit-large-patch14?
2 | layers vit-base | did you mean hf:google/vit-base-patch16-224?
2 | layers resnet-200 | did you mean resnet50, resnet152, resnet101?
2 | layers ViT-B/32 | open_clip:ViT-B-32
2 | layers resnet50.a1_in1k | timm:resnet50.a1_in1k
2 | layers unet | smp:unet/resnet34
"""  # noqa: E501  a row each


@pytest.mark.parametrize("guess", GUESSES.splitlines())
def test_a_first_guess_is_answered_with_what_to_type(run, guess):
    Image.new("RGB", (40, 30)).save("cat.png")
    code, words, hint = (part.strip() for part in guess.split("|"))
    ended = run(*shlex.split(words))
    assert (ended.code, ended.out) == (int(code), "")
    said = ended.err.partition("\nhint: ")[2]
    assert re.split("(; )?see: hookcli| one of: |\n", said)[0] == hint


def test_a_source_file_is_answered_with_the_models_that_may_be_in_it(run, tmp_path):
    file = tmp_path / "net.py"
    file.write_text("class Net: ...\ndef _help(): ...\ndef make(): ...\nraise SystemExit")
    ended = run("layers", file)
    assert ended.code == 2
    assert f"hint: {file}:make, {file}:Net\n" in ended.err
    file.write_text("def make(:")
    assert "hint: write FILE.py:FUNCTION\n" in run("layers", file).err


def test_every_command_and_option_of_the_table_exists():
    options = guesses.list_options(map(build_command, COMMANDS)).values()
    text = "\n".join(guesses._read_table().values())
    assert {*re.findall(r"--[\w-]+", text)} <= {"--help", "--version"}.union(*options)
    assert {*re.findall(r"hookcli ([a-z]+)", text)} <= {*COMMANDS}
