"""The types of hookcli's public names; tools/stub.py writes this file."""

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, TypeAlias, overload

from hookcli.verbs.ablate import Ablation as Ablation
from hookcli.verbs.comparison_outcome import ComparisonOutcome as ComparisonOutcome
from hookcli.verbs.export import Export as Export
from hookcli.verbs.golden import Golden as Golden
from hookcli.verbs.inspection_outcome import Inspection as Inspection
from hookcli.verbs.inspection_outcome import Planned as Planned
from hookcli.verbs.layers import LayerSurvey as LayerSurvey
from hookcli.verbs.map import ImageMap as ImageMap
from hookcli.verbs.models import ModelList as ModelList
from hookcli.verbs.places import PlacesOutcome as PlacesOutcome
from hookcli.verbs.probe import Probe as Probe
from hookcli.verbs.report import Report as Report
from hookcli.verbs.schema import Schema as Schema
from hookcli.verbs.sensitivity import SensitivityOutcome as SensitivityOutcome
from hookcli.verbs.similarity import Similarity as Similarity
from hookcli.errors import HookcliError as HookcliError
from hookcli.errors import HookcliWarning as HookcliWarning
from hookcli.passes.capture import Captured as Captured
from hookcli.passes.capture import capture as capture
from hookcli.reading.load import Run as Run
from hookcli.reading.load import load_run as load_run
from hookcli.records.layer_records import LayerRecord as LayerRecord
from hookcli.records.layer_records import TensorStats as TensorStats

__version__: str
__all__: list[str]
_HOMES: dict[str, str]
_Many: TypeAlias = str | Iterable[str]
_Path: TypeAlias = str | PathLike[str]

@overload
def ablate(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    channels: Any | None = None,
    batch_size: int | None = None,
    score: str | float | None = None,
    target: str | float | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    range: Any | None = None,
    page: Any | None = None,
    top: int | None = None,
    dry_run: Literal[False] | None = None,
) -> Ablation:
    """Zero channels one by one, and rank them by how much the model's score changes.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        channels: Zero these channels, counted from 0: '3,7,10-20'.  [default: all]
        batch_size: Largest number of channels in a forward pass.  [default: 16]
        score: logit, probability, cross-entropy, sum, or FILE.py:FUNCTION.  [default: logit]
        target: The class: predicted, an index or a name.  [default: predicted]
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        top: Rows of the table; other formats have all channels.  [default: 20]
        dry_run: Print the plan and stop.
    """

@overload
def ablate(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    channels: Any | None = None,
    batch_size: int | None = None,
    score: str | float | None = None,
    target: str | float | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    range: Any | None = None,
    page: Any | None = None,
    top: int | None = None,
    dry_run: Literal[True],
) -> Planned:
    """Zero channels one by one, and rank them by how much the model's score changes.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        channels: Zero these channels, counted from 0: '3,7,10-20'.  [default: all]
        batch_size: Largest number of channels in a forward pass.  [default: 16]
        score: logit, probability, cross-entropy, sum, or FILE.py:FUNCTION.  [default: logit]
        target: The class: predicted, an index or a name.  [default: predicted]
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        top: Rows of the table; other formats have all channels.  [default: 20]
        dry_run: Print the plan and stop.
    """

def compare(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    metric: Literal['rel-l2', 'max-abs', 'mean-abs', 'cosine'] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    layer_tolerance: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    equal_nan: bool | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    against: Any,
    blame: bool | None = None,
    match: Literal['id', 'order'] | None = None,
    keep_export: _Path | None = None,
    top: int | None = None,
    sort: Literal['order', 'worst'] | None = None,
    at: Literal['output', 'input', 'both'] | None = None,
    pictures: _Path | None = None,
    theme: Literal['dark', 'light'] | None = None,
) -> ComparisonOutcome:
    """Run a model in two ways: which layer differs first, and by how much.

    Ends with code 7 if a layer differs.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        metric: rel-l2, cosine, max-abs or mean-abs; the last two need tensors.  [default: rel-l2]
        rtol: Largest difference, relative to A.  [default: by dtype: float32 1e-5, float16 5e-3, bfloat16 5e-2]
        atol: Absolute difference allowed in addition.  [default: 0.0]
        layer_tolerance: A separate --rtol for some calls: 'layer4.*=1e-2'.
        equal_nan: Treat NaN in the same places as equal.
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        against: What is different in B; VARIANT is explained below.
        blame: Find the layers that differ by themselves, not only because their inputs differ.
        match: How to pair layers with the nodes of a file: by id (module path) or by order.  [default: id]
        keep_export: Keep the model that --against onnx or torch-export exported.
        top: Calls in the table: the worst, and the culprits; csv and json have every image.  [default: 20]
        sort: Rows in the order of the network, or the worst first.  [default: order]
        at: Observe output, input or both.  [default: output]
        pictures: Also write a page with pictures of the calls that differ most.
        theme: Background of the pictures; light is for papers.  [default: dark]
    """

def diff(
    a: Any,
    b: Any,
    *,
    metric: Literal['rel-l2', 'max-abs', 'mean-abs', 'cosine'] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    layer_tolerance: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    equal_nan: bool | None = None,
    top: int | None = None,
    sort: Literal['order', 'worst'] | None = None,
    match: Literal['id', 'order'] | None = None,
    pictures: _Path | None = None,
    theme: Literal['dark', 'light'] | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
) -> ComparisonOutcome:
    """Compare two runs or golden files: which layer differs first, and by how much.

    Ends with code 7 if a layer differs.

    Args:
        metric: rel-l2, cosine, max-abs or mean-abs; the last two need tensors.  [default: rel-l2]
        rtol: Largest difference, relative to A.  [default: by dtype: float32 1e-5, float16 5e-3, bfloat16 5e-2]
        atol: Absolute difference allowed in addition.  [default: 0.0]
        layer_tolerance: A separate --rtol for some calls: 'layer4.*=1e-2'.
        equal_nan: Treat NaN in the same places as equal.
        a: A run folder, a golden file, or - for standard input: the reference.
        b: A run folder, a golden file, or - for standard input.
        top: Calls in the table: the worst, and the culprits; csv and json have every image.  [default: 20]
        sort: Rows in the order of the network, or the worst first.  [default: order]
        match: How to pair calls: by id (the same name) or by order.  [default: id]
        pictures: Also write a page with pictures of the calls that differ most; needs saved tensors.
        theme: Background of the pictures; light is for papers.  [default: dark]
        storage_option: Option of the storage behind a URL, but no credentials.
    """

def export(
    run: Any,
    *,
    to: Literal['npy', 'csv'],
    out: _Path | None = None,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    overwrite: bool | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
) -> Export:
    """Write the saved tensors of a run to .npy or .csv files.

    Args:
        run: The folder of a run, or its URL.
        to: One array (images, …) per call, or one row per image.
        out: The folder.  [default: hookcli-exports/RUN]
        layers: Which calls, by id or glob: 'layer1.*'.  [default: all]
        overwrite: Replace files that an export wrote.
        storage_option: Option of the storage behind a URL, but no credentials.
    """

def golden(
    model: Any,
    images: Any | None = None,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    workers: int | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    batch_size: int | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    at: Literal['output', 'input', 'both'] | None = None,
    out: _Path | None = None,
    overwrite: bool | None = None,
) -> Golden:
    """Write a run as one small file; hookcli diff compares later runs with this file.

    The file has the layers of the run or, with a model, those of --layers; by default, the
    convolutions and the output of the model.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        model: A model, as for hookcli inspect, or the folder of a run.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: With MODEL: images, as for hookcli inspect.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        batch_size: Largest number of images in a forward pass.  [default: 8]
        storage_option: Option of the storage behind a URL, but no credentials.
        at: Observe output, input or both.  [default: output]
        out: The golden file.  [default: stdout]
        overwrite: Replace a file that is no golden file, too.
    """

@overload
def gradients(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    score: str | float | None = None,
    target: int | _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    text: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input_grad: bool | None = None,
    times_activation: bool | None = None,
    cam: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    cam_method: Literal['gradcam', 'gradcam++', 'layercam', 'eigencam', 'hirescam'] | None = None,
    cam_mean: bool | None = None,
    no_judge: bool | None = None,
    saliency: bool | None = None,
    out: Any | None = None,
    overwrite: bool | None = None,
    resume: bool | None = None,
    verify: bool | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    grids: Literal['auto', 'layers', 'sheet', 'none'] | None = None,
    top: int | None = None,
    channels: Any | None = None,
    rank: Literal['std', 'mean', 'max', 'index'] | None = None,
    scale: Literal['channel', 'layer'] | None = None,
    colormap: str | float | None = None,
    tile: int | None = None,
    theme: Literal['dark', 'light'] | None = None,
    picture_format: Literal['png', 'svg', 'pdf'] | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    save: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pool: str | float | None = None,
    tensor_dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    tensor_channels: Any | None = None,
    max_disk: float | None = None,
    sketch: bool | None = None,
    rule: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    fail_on: Any | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    save_weights: _Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    cluster: str | float | None = None,
    cluster_workers: int | None = None,
    cpus_per_worker: int | None = None,
    gpus_per_worker: float | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    time: bool | None = None,
    dry_run: Literal[False] | None = None,
    open: bool | None = None,
) -> Inspection:
    """Write gradients of chosen layers and of their weights, and draw Grad-CAM and saliency.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        score: logit, probability, cross-entropy, sum, or FILE.py:FUNCTION.  [default: logit]
        target: Class (predicted, an index or a name), box:N, pixels:CLASS or like:IMAGE; repeats.  [default: predicted]
        text: Score the similarity to a text, by CLIP or SigLIP; repeats.
        input_grad: Also record the gradient of the first layer's input.
        times_activation: Draw activation times gradient in the grids.
        cam: Draw a Grad-CAM of these layers over the image; auto chooses the layer.
        cam_method: gradcam, gradcam++, layercam, eigencam or hirescam.  [default: gradcam]
        cam_mean: One CAM: the mean of those of all layers.
        no_judge: Do not test, for up to 8 images, what each CAM finds.
        saliency: Draw how much the score depends on each pixel.
        out: The run folder, or a URL.  [default: hookcli-runs/MODEL-IMAGE]
        overwrite: Replace the run in the run folder.
        resume: Continue an interrupted run.
        verify: With --resume: compare images by content, not by time.
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        grids: layers (a picture per layer), sheet (one per image), none or auto.  [default: auto]
        top: Channels in a picture.  [default: 64]
        channels: Draw these channels, counted from 0: '3,7,10-20'.
        rank: Order of channels: std, mean, max or index.  [default: std]
        scale: One colour range per channel or per layer.  [default: channel]
        colormap: ember, or a colormap of matplotlib.  [default: ember; gradients: tide]
        tile: Longest side of a channel, in pixels; also scales attention heads.  [default: 64]
        theme: Background of pictures; light suits papers.  [default: dark]
        picture_format: Also write pictures as svg or pdf, for papers.  [default: png]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        save: Also save tensors, or the attention of all heads.
        pool: Reduce saved maps to one value, or to N x N.  [default: none]
        tensor_dtype: Save as float32, float16 or bfloat16.
        tensor_channels: Save only these channels: '3,7,10-20'.
        max_disk: Refuse to save more than this.  [default: 10.0]
        sketch: Keep 268 bytes of each tensor, for hookcli golden and diff.  [default: for up to 32 images]
        rule: Change the threshold of a finding: dead=0.5.
        fail_on: End with code 7 if a rule finds something: nan,inf,dead.
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        save_weights: With --prune: write the pruned weights as .safetensors.
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        threads: Threads of torch.  [default: the cores]
        cluster: Run on a Ray cluster; auto starts one on this machine.
        cluster_workers: Number of workers.  [default: all that fit]
        cpus_per_worker: Cores per worker.  [default: 1]
        gpus_per_worker: GPUs per worker, such as 0.5.
        storage_option: Option of the storage behind a URL, but no credentials.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        time: Print how long each stage took.
        dry_run: Print the plan and stop.
        open: Show the page in the browser.
    """

@overload
def gradients(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    score: str | float | None = None,
    target: int | _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    text: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input_grad: bool | None = None,
    times_activation: bool | None = None,
    cam: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    cam_method: Literal['gradcam', 'gradcam++', 'layercam', 'eigencam', 'hirescam'] | None = None,
    cam_mean: bool | None = None,
    no_judge: bool | None = None,
    saliency: bool | None = None,
    out: Any | None = None,
    overwrite: bool | None = None,
    resume: bool | None = None,
    verify: bool | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    grids: Literal['auto', 'layers', 'sheet', 'none'] | None = None,
    top: int | None = None,
    channels: Any | None = None,
    rank: Literal['std', 'mean', 'max', 'index'] | None = None,
    scale: Literal['channel', 'layer'] | None = None,
    colormap: str | float | None = None,
    tile: int | None = None,
    theme: Literal['dark', 'light'] | None = None,
    picture_format: Literal['png', 'svg', 'pdf'] | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    save: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pool: str | float | None = None,
    tensor_dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    tensor_channels: Any | None = None,
    max_disk: float | None = None,
    sketch: bool | None = None,
    rule: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    fail_on: Any | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    save_weights: _Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    cluster: str | float | None = None,
    cluster_workers: int | None = None,
    cpus_per_worker: int | None = None,
    gpus_per_worker: float | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    time: bool | None = None,
    dry_run: Literal[True],
    open: bool | None = None,
) -> Planned:
    """Write gradients of chosen layers and of their weights, and draw Grad-CAM and saliency.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        score: logit, probability, cross-entropy, sum, or FILE.py:FUNCTION.  [default: logit]
        target: Class (predicted, an index or a name), box:N, pixels:CLASS or like:IMAGE; repeats.  [default: predicted]
        text: Score the similarity to a text, by CLIP or SigLIP; repeats.
        input_grad: Also record the gradient of the first layer's input.
        times_activation: Draw activation times gradient in the grids.
        cam: Draw a Grad-CAM of these layers over the image; auto chooses the layer.
        cam_method: gradcam, gradcam++, layercam, eigencam or hirescam.  [default: gradcam]
        cam_mean: One CAM: the mean of those of all layers.
        no_judge: Do not test, for up to 8 images, what each CAM finds.
        saliency: Draw how much the score depends on each pixel.
        out: The run folder, or a URL.  [default: hookcli-runs/MODEL-IMAGE]
        overwrite: Replace the run in the run folder.
        resume: Continue an interrupted run.
        verify: With --resume: compare images by content, not by time.
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        grids: layers (a picture per layer), sheet (one per image), none or auto.  [default: auto]
        top: Channels in a picture.  [default: 64]
        channels: Draw these channels, counted from 0: '3,7,10-20'.
        rank: Order of channels: std, mean, max or index.  [default: std]
        scale: One colour range per channel or per layer.  [default: channel]
        colormap: ember, or a colormap of matplotlib.  [default: ember; gradients: tide]
        tile: Longest side of a channel, in pixels; also scales attention heads.  [default: 64]
        theme: Background of pictures; light suits papers.  [default: dark]
        picture_format: Also write pictures as svg or pdf, for papers.  [default: png]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        save: Also save tensors, or the attention of all heads.
        pool: Reduce saved maps to one value, or to N x N.  [default: none]
        tensor_dtype: Save as float32, float16 or bfloat16.
        tensor_channels: Save only these channels: '3,7,10-20'.
        max_disk: Refuse to save more than this.  [default: 10.0]
        sketch: Keep 268 bytes of each tensor, for hookcli golden and diff.  [default: for up to 32 images]
        rule: Change the threshold of a finding: dead=0.5.
        fail_on: End with code 7 if a rule finds something: nan,inf,dead.
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        save_weights: With --prune: write the pruned weights as .safetensors.
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        threads: Threads of torch.  [default: the cores]
        cluster: Run on a Ray cluster; auto starts one on this machine.
        cluster_workers: Number of workers.  [default: all that fit]
        cpus_per_worker: Cores per worker.  [default: 1]
        gpus_per_worker: GPUs per worker, such as 0.5.
        storage_option: Option of the storage behind a URL, but no credentials.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        time: Print how long each stage took.
        dry_run: Print the plan and stop.
        open: Show the page in the browser.
    """

@overload
def inspect(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    out: Any | None = None,
    overwrite: bool | None = None,
    resume: bool | None = None,
    verify: bool | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    grids: Literal['auto', 'layers', 'sheet', 'none'] | None = None,
    top: int | None = None,
    channels: Any | None = None,
    rank: Literal['std', 'mean', 'max', 'index'] | None = None,
    scale: Literal['channel', 'layer'] | None = None,
    colormap: str | float | None = None,
    tile: int | None = None,
    theme: Literal['dark', 'light'] | None = None,
    picture_format: Literal['png', 'svg', 'pdf'] | None = None,
    focus: Any | None = None,
    overview: bool | None = None,
    heat: Literal['mean', 'max', 'sum', 'l2'] | None = None,
    top_images: int | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    attention: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    patch: Any | None = None,
    rollout: bool | None = None,
    save: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pool: str | float | None = None,
    tensor_dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    tensor_channels: Any | None = None,
    max_disk: float | None = None,
    sketch: bool | None = None,
    rule: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    fail_on: Any | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    save_weights: _Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    cluster: str | float | None = None,
    cluster_workers: int | None = None,
    cpus_per_worker: int | None = None,
    gpus_per_worker: float | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    at: Literal['output', 'input', 'both'] | None = None,
    batch_size: int | None = None,
    time: bool | None = None,
    dry_run: Literal[False] | None = None,
    open: bool | None = None,
) -> Inspection:
    """Write feature maps and statistics of chosen layers, and a page to look at.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        out: The run folder, or a URL.  [default: hookcli-runs/MODEL-IMAGE]
        overwrite: Replace the run in the run folder.
        resume: Continue an interrupted run.
        verify: With --resume: compare images by content, not by time.
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        grids: layers (a picture per layer), sheet (one per image), none or auto.  [default: auto]
        top: Channels in a picture.  [default: 64]
        channels: Draw these channels, counted from 0: '3,7,10-20'.
        rank: Order of channels: std, mean, max or index.  [default: std]
        scale: One colour range per channel or per layer.  [default: channel]
        colormap: ember, or a colormap of matplotlib.  [default: ember; gradients: tide]
        tile: Longest side of a channel, in pixels; also scales attention heads.  [default: 64]
        theme: Background of pictures; light suits papers.  [default: dark]
        picture_format: Also write pictures as svg or pdf, for papers.  [default: png]
        focus: Put the channels first that fire more inside this box.
        overview: Also draw overview.png, for a slide.
        heat: Draw one map per layer over the image: its channels' mean, maximum, sum or norm.
        top_images: List the N images that fire each channel most.  [default: 9]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        attention: Layers whose heads to analyse; 'attention[-1]' is the last.
        patch: Draw what the patch at this pixel looks at.  [default: the class token]
        rollout: Also draw the attention multiplied over all layers.
        save: Also save tensors, or the attention of all heads.
        pool: Reduce saved maps to one value, or to N x N.  [default: none]
        tensor_dtype: Save as float32, float16 or bfloat16.
        tensor_channels: Save only these channels: '3,7,10-20'.
        max_disk: Refuse to save more than this.  [default: 10.0]
        sketch: Keep 268 bytes of each tensor, for hookcli golden and diff.  [default: for up to 32 images]
        rule: Change the threshold of a finding: dead=0.5.
        fail_on: End with code 7 if a rule finds something: nan,inf,dead.
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        save_weights: With --prune: write the pruned weights as .safetensors.
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        threads: Threads of torch.  [default: the cores]
        cluster: Run on a Ray cluster; auto starts one on this machine.
        cluster_workers: Number of workers.  [default: all that fit]
        cpus_per_worker: Cores per worker.  [default: 1]
        gpus_per_worker: GPUs per worker, such as 0.5.
        storage_option: Option of the storage behind a URL, but no credentials.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        at: Observe output, input or both.  [default: output]
        batch_size: Largest number of images in a forward pass.  [default: 8]
        time: Print how long each stage took.
        dry_run: Print the plan and stop.
        open: Show the page in the browser.
    """

@overload
def inspect(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    out: Any | None = None,
    overwrite: bool | None = None,
    resume: bool | None = None,
    verify: bool | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    grids: Literal['auto', 'layers', 'sheet', 'none'] | None = None,
    top: int | None = None,
    channels: Any | None = None,
    rank: Literal['std', 'mean', 'max', 'index'] | None = None,
    scale: Literal['channel', 'layer'] | None = None,
    colormap: str | float | None = None,
    tile: int | None = None,
    theme: Literal['dark', 'light'] | None = None,
    picture_format: Literal['png', 'svg', 'pdf'] | None = None,
    focus: Any | None = None,
    overview: bool | None = None,
    heat: Literal['mean', 'max', 'sum', 'l2'] | None = None,
    top_images: int | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    attention: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    patch: Any | None = None,
    rollout: bool | None = None,
    save: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pool: str | float | None = None,
    tensor_dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    tensor_channels: Any | None = None,
    max_disk: float | None = None,
    sketch: bool | None = None,
    rule: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    fail_on: Any | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    save_weights: _Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    cluster: str | float | None = None,
    cluster_workers: int | None = None,
    cpus_per_worker: int | None = None,
    gpus_per_worker: float | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    at: Literal['output', 'input', 'both'] | None = None,
    batch_size: int | None = None,
    time: bool | None = None,
    dry_run: Literal[True],
    open: bool | None = None,
) -> Planned:
    """Write feature maps and statistics of chosen layers, and a page to look at.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        out: The run folder, or a URL.  [default: hookcli-runs/MODEL-IMAGE]
        overwrite: Replace the run in the run folder.
        resume: Continue an interrupted run.
        verify: With --resume: compare images by content, not by time.
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        grids: layers (a picture per layer), sheet (one per image), none or auto.  [default: auto]
        top: Channels in a picture.  [default: 64]
        channels: Draw these channels, counted from 0: '3,7,10-20'.
        rank: Order of channels: std, mean, max or index.  [default: std]
        scale: One colour range per channel or per layer.  [default: channel]
        colormap: ember, or a colormap of matplotlib.  [default: ember; gradients: tide]
        tile: Longest side of a channel, in pixels; also scales attention heads.  [default: 64]
        theme: Background of pictures; light suits papers.  [default: dark]
        picture_format: Also write pictures as svg or pdf, for papers.  [default: png]
        focus: Put the channels first that fire more inside this box.
        overview: Also draw overview.png, for a slide.
        heat: Draw one map per layer over the image: its channels' mean, maximum, sum or norm.
        top_images: List the N images that fire each channel most.  [default: 9]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        attention: Layers whose heads to analyse; 'attention[-1]' is the last.
        patch: Draw what the patch at this pixel looks at.  [default: the class token]
        rollout: Also draw the attention multiplied over all layers.
        save: Also save tensors, or the attention of all heads.
        pool: Reduce saved maps to one value, or to N x N.  [default: none]
        tensor_dtype: Save as float32, float16 or bfloat16.
        tensor_channels: Save only these channels: '3,7,10-20'.
        max_disk: Refuse to save more than this.  [default: 10.0]
        sketch: Keep 268 bytes of each tensor, for hookcli golden and diff.  [default: for up to 32 images]
        rule: Change the threshold of a finding: dead=0.5.
        fail_on: End with code 7 if a rule finds something: nan,inf,dead.
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        save_weights: With --prune: write the pruned weights as .safetensors.
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        threads: Threads of torch.  [default: the cores]
        cluster: Run on a Ray cluster; auto starts one on this machine.
        cluster_workers: Number of workers.  [default: all that fit]
        cpus_per_worker: Cores per worker.  [default: 1]
        gpus_per_worker: GPUs per worker, such as 0.5.
        storage_option: Option of the storage behind a URL, but no credentials.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        at: Observe output, input or both.  [default: output]
        batch_size: Largest number of images in a forward pass.  [default: 8]
        time: Print how long each stage took.
        dry_run: Print the plan and stop.
        open: Show the page in the browser.
    """

def layers(
    model: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    ops: bool | None = None,
    sort: Literal['calls', 'flops', 'params', 'memory', 'name', 'time'] | None = None,
    depth: int | None = None,
    measure: bool | None = None,
    batch_size: int | None = None,
    backward: bool | None = None,
    out: _Path | None = None,
    overwrite: bool | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
) -> LayerSurvey:
    """List a model's layers: shapes, parameters, cost, and traps for hooks.

    A trap is a reason why a simple hook on a layer would mislead. hookcli loads no weights and
    computes no values, but runs a file such as net.onnx once. A multiply-add counts as two FLOPs.
    With --measure, hookcli runs the model on random pixels, with random weights.

    Args:
        layers: Layers to observe; FORM is explained below.  [default: all]
        exclude: Layers to leave out.
        ops: Also list operations between modules, such as additions.
        sort: Order of the leaves: calls, flops, params, memory, name or time.  [default: calls]
        depth: Depth of the tree.  [default: 2 for more than 60 rows]
        measure: Run the model, and measure each layer's time and memory.
        batch_size: Images in the batch.  [default: 1]
        backward: Also measure the backward pass.
        out: Write a page with charts into this folder.
        overwrite: Replace the page in the folder.
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
    """

def map(
    model: Any,
    images: Any | None = None,
    *,
    pool: Literal['mean', 'max', 'class'] | None = None,
    neighbours: int | None = None,
    duplicates: float | None = None,
    labels: Any | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    out: _Path | None = None,
    overwrite: bool | None = None,
    keep_run: _Path | None = None,
    theme: Literal['dark', 'light'] | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    workers: int | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    batch_size: int | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
) -> ImageMap:
    """Lay out images by the features of one layer: neighbours, near duplicates, outliers.

    Without --layers, hookcli uses the model's own pooled embedding, or the input of its classifier.
    If --layers names several layers, hookcli uses the last one.
    Needs scikit-learn: pip install 'hookcli[analysis]'

    Args:
        pool: Mean or maximum over a map, or the class token.  [default: mean]
        neighbours: Nearest images to list for each image.  [default: 10]
        duplicates: Largest distance of near duplicates.  [default: from the distances of all images]
        labels: Colour the map by folder, or by a file of labels.
        exclude: Layers to leave out.
        out: The folder of the analysis.  [default: hookcli-analyses/NAME]
        overwrite: Replace the analysis in the folder.
        keep_run: With MODEL: keep the run that is made for the analysis.
        theme: Background of the pictures; light is for papers.  [default: dark]
        model: A model, as for hookcli inspect, or the folder of a run.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: With MODEL: images, as for hookcli inspect.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        batch_size: Largest number of images in a forward pass.  [default: 8]
        storage_option: Option of the storage behind a URL, but no credentials.
        layers: Layers to observe; FORM is explained below.  [default: as said above]
    """

def models(
    pattern: str | float | None = None,
    *,
    source: str | float | None = None,
    fetch: bool | None = None,
) -> ModelList:
    """List models, their weights, and which of these are in the local cache.

    Without --source, hookcli lists torchvision's models. A multiply-add counts as two FLOPs. The
    shell completes the names of a source that you have listed once.

    Args:
        pattern: Names that match: 'resnet*'.  [default: all]
        source: List what is installed or cached of torchvision, timm, hf, open_clip or smp.
        fetch: Download the weights of the model GLOB, of any source, for runs without a network.
    """

def places(
    model: Any,
    images: Any | None = None,
    *,
    pca: bool | None = None,
    foreground: bool | None = None,
    basis: str | float | None = None,
    similar: Any | None = None,
    correspond: str | float | None = None,
    at: Any | None = None,
    mutual: bool | None = None,
    image: str | float | None = None,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    out: _Path | None = None,
    overwrite: bool | None = None,
    keep_run: _Path | None = None,
    theme: Literal['dark', 'light'] | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    workers: int | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    batch_size: int | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
) -> PlacesOutcome:
    """Colour the places of layers by their components, or find similar and matching places.

    Places are the tokens of an image, or the pixels of a layer's feature maps; components are the
    principal components of their features. With a run, hookcli shows all layers that have places,
    or those of --layers.

    Args:
        pca: Show the first three components as red, green and blue.
        foreground: With --pca: only places in front, by the first component.
        basis: With --pca: use the components of another analysis.
        similar: Show how similar every place is to the place at this pixel.
        correspond: Match the places of --image with those of IMAGE.
        at: With --correspond: the match of this pixel.
        mutual: With --correspond: only places that choose each other.
        image: The image of --similar and --correspond.  [default: the first]
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        out: The folder of the analysis.  [default: hookcli-analyses/NAME]
        overwrite: Replace the analysis in the folder.
        keep_run: With MODEL: keep the run that is made for the analysis.
        theme: Background of the pictures; light is for papers.  [default: dark]
        model: A model, as for hookcli inspect, or the folder of a run.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: With MODEL: images, as for hookcli inspect.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        batch_size: Largest number of images in a forward pass.  [default: 8]
        storage_option: Option of the storage behind a URL, but no credentials.
    """

def probe(
    model: Any,
    images: Any | None = None,
    *,
    labels: Any,
    pool: Literal['mean', 'max', 'class'] | None = None,
    folds: int | None = None,
    control: Any | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    out: _Path | None = None,
    overwrite: bool | None = None,
    keep_run: _Path | None = None,
    theme: Literal['dark', 'light'] | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    workers: int | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    batch_size: int | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
) -> Probe:
    """Find the layer that knows a label: logistic regression on the features of each layer.

    The accuracy is cross-validated. hookcli compares it with the accuracy of controls: the pixels,
    and the layers of another run. Without --layers, hookcli probes a model's activation layers.
    Needs scikit-learn: pip install 'hookcli[analysis]'

    Args:
        labels: The folder of each photo, or a file with the columns image and label.
        pool: Mean or maximum over a map, or the class token.  [default: mean]
        folds: Parts into which the images are split.  [default: 5]
        control: A run to compare with: the same network with random weights.
        exclude: Layers to leave out.
        out: The folder of the analysis.  [default: hookcli-analyses/NAME]
        overwrite: Replace the analysis in the folder.
        keep_run: With MODEL: keep the run that is made for the analysis.
        theme: Background of the pictures; light is for papers.  [default: dark]
        model: A model, as for hookcli inspect, or the folder of a run.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: With MODEL: images, as for hookcli inspect.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        batch_size: Largest number of images in a forward pass.  [default: 8]
        storage_option: Option of the storage behind a URL, but no credentials.
        layers: Layers to observe; FORM is explained below.  [default: as said above]
    """

def report(
    run: Any,
    *,
    single_file: bool | None = None,
    open: bool | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
) -> Report:
    """Make the page of a run again; needs neither the model nor the images.

    Args:
        run: The folder of a run, or its URL.
        single_file: Embed the pictures in the page, so that you can send it.
        open: Show the page in the browser.
        storage_option: Option of the storage behind a URL, but no credentials.
    """

def schema(
    name: str | float | None = None,
) -> Schema:
    """Print the JSON Schema (draft 2020-12) of a command's output, or of a run's file.

    Args:
        name: inspect and other commands; inspect.jsonl for its lines; or a file of a run: run.json, manifest.json, report.json, index.json.  [default: all]
    """

def sensitivity(
    model: Any,
    images: Any,
    *,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    to: Literal['float16', 'bfloat16', 'int8', 'float8_e4m3'],
    round: Literal['weights', 'outputs', 'both'] | None = None,
    per_tensor: bool | None = None,
    percentile: Any | None = None,
    keep: Any | None = None,
    reach: Any | None = None,
    batch_size: int | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    range: Any | None = None,
    page: Any | None = None,
    nodes_of: _Path | None = None,
    top: int | None = None,
) -> SensitivityOutcome:
    """Round layers to a smaller format one by one, and rank them by what the answers lose.

    A list of layers to leave alone is tested by a run in which all others are rounded. Ends with
    code 7 if no list reaches the goal of --reach.

    Args:
        layers: Layers to round; FORM is explained below.  [default: those that use a weight]
        exclude: Layers to leave out.
        to: float16, bfloat16, int8 or float8_e4m3.
        round: What of a layer to round: weights, outputs or both.  [default: both]
        per_tensor: One scale for a weight, and not one for each channel.
        percentile: Clip outputs to this percentile of their magnitudes: 99.9.  [default: the largest]
        keep: Leave this share of the layers alone, the most sensitive, and round the others.
        reach: Find a short list of layers to leave alone: 'agreement>=0.99', 'divergence<=0.01' or 'rel-l2<=0.05'.
        batch_size: Images in a forward pass.  [default: 16]
        model: resnet34 (hookcli models lists them), timm:NAME, hf:NAME, open_clip:NAME or smp:NAME of other libraries, a function that makes a model (FILE.py:FUNCTION or MODULE:FUNCTION), or a file: FILE.onnx or FILE.pt2.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: Files, folders, globs, '@LIST' of names, or - for names on standard input.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        nodes_of: Also name the nodes of this export that compute the layers to leave alone.
        top: Rows of the table; other formats have all layers.  [default: 20]
    """

def similarity(
    model: Any,
    images: Any | None = None,
    *,
    pool: Literal['none', 'mean', 'max'] | None = None,
    layers: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    exclude: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    out: _Path | None = None,
    overwrite: bool | None = None,
    keep_run: _Path | None = None,
    theme: Literal['dark', 'light'] | None = None,
    weights: str | float | None = None,
    seed: int | None = None,
    device: str | float | None = None,
    dtype: Literal['float32', 'float16', 'bfloat16'] | None = None,
    size: int | None = None,
    resize: int | None = None,
    bands: Any | None = None,
    mean: Any | None = None,
    std: Any | None = None,
    interpolation: Literal['nearest', 'bilinear', 'bicubic'] | None = None,
    preprocess: str | float | None = None,
    model_arg: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    input: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    inputs_as: Literal['arguments', 'dict'] | None = None,
    categories: str | float | None = None,
    output_key: str | float | None = None,
    mode: Literal['eval', 'train', 'as-made'] | None = None,
    like: str | float | None = None,
    input_layout: Literal['NCHW', 'NHWC'] | None = None,
    provider: str | float | None = None,
    no_recursive: bool | None = None,
    null: bool | None = None,
    on_error: Literal['stop', 'skip'] | None = None,
    workers: int | None = None,
    edit: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    prune: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
    pair: Any | None = None,
    clip: bool | None = None,
    range: Any | None = None,
    page: Any | None = None,
    batch_size: int | None = None,
    storage_option: _Many | Iterable[Any] | Mapping[str, Any] | None = None,
) -> Similarity:
    """Compare every pair of layers, of one run or of two: which compute the same?

    The measure is linear CKA. With two runs of the same images: hookcli similarity RUN RUN.

    Args:
        pool: Compare whole maps, or one value of each channel.  [default: none]
        layers: Layers to observe; FORM is explained below.  [default: conv]
        exclude: Layers to leave out.
        out: The folder of the analysis.  [default: hookcli-analyses/NAME]
        overwrite: Replace the analysis in the folder.
        keep_run: With MODEL: keep the run that is made for the analysis.
        theme: Background of the pictures; light is for papers.  [default: dark]
        model: A model, as for hookcli inspect, or the folder of a run.
        weights: auto (trained if available, else random), pretrained, random, a name such as IMAGENET1K_V1, a file, or FILE:KEY for a part of a checkpoint.  [default: auto]
        seed: Seed of random weights and pruning.  [default: 0]
        device: auto, cpu, cuda, cuda:N or mps.  [default: auto]
        dtype: float32, float16 or bfloat16.  [default: float32]
        size: Side of the network's input, in pixels.
        resize: Short side before cropping, in pixels.
        bands: Bands of the pictures to use, counted from 0: Sentinel's 4,3,2 is 3,2,1.
        mean: Mean to subtract from the colours (0 to 1); one number per band.
        std: Standard deviation to divide the colours by.
        interpolation: Resizing: nearest, bilinear or bicubic.
        preprocess: Prepare images in another way; RECIPE is explained below.
        model_arg: Argument of the model: num_classes=50.
        input: Another input of the model, the same for all images; NAME=pixels is the image.
        inputs_as: How the model takes its inputs: as arguments, or as one dict.  [default: arguments]
        categories: Names of the classes: a file with a name per line, or imagenet.
        output_key: Which of several outputs predictions and scores read: 1, or pred.
        mode: eval, train, or as-made (as the builder left it).  [default: eval]
        like: For a file of a model: prepare images as for this model.
        input_layout: Axes of a file's picture: NCHW or NHWC.  [default: from shape and first operator]
        provider: Execution provider of ONNX Runtime: cpu, cuda.  [default: cpu]
        images: With MODEL: images, as for hookcli inspect.
        no_recursive: Skip folders inside a folder.
        null: Names in lists end with NUL (find -print0).
        on_error: What to do when the model fails on an image.  [default: stop]
        workers: Processes that read images.  [default: depends on the cores; 0 in Python]
        edit: Change the values that pass through a layer; explained below.
        prune: Set a share of the weights to zero: 'conv=0.3'. HOW is l1, random or ln.
        pair: Second image, for optical flow.  [default: the same]
        clip: Read a folder of frames as one video clip.
        range: What is black and white in pictures of more than 8 bits: full (of the type), LO,HI, minmax or percent:P (of each picture).  [default: full]
        page: Page of files with several, counted from 0.  [default: 0]
        batch_size: Largest number of images in a forward pass.  [default: 8]
        storage_option: Option of the storage behind a URL, but no credentials.
    """
