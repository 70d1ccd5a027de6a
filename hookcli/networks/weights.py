"""Give a model its weights: trained, random, or from a file, whose names and shapes must fit."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter, OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hookcli.errors import ModelError, RequestError, WeightsError
from hookcli.networks.build import build_random, build_shapes, build_unset
from hookcli.networks.fingerprint import hash_weights
from hookcli.networks.source import UNREACHABLE, ModelWithWeights
from hookcli.networks.weights_file import kind_name, name_some, read_weights_file
from hookcli.outside.files import split_key
from hookcli.outside.foreign import ForeignCode, ask, first_line
from hookcli.records.text import count, shape_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hookcli.config import ModelRequest
    from hookcli.networks.source import Source
    from hookcli.networks.weights_file import WeightsFile

_HEADS = re.compile(r"(aux|Aux|fc|head|classifier|last_linear|roi_heads)")
_COUNTER = "num_batches_tracked"  # in a norm; older files lack it, or have a different dtype
_MOST_PARTS = 16  # of a name that are tried as its prefix; a name full of dots would take forever
# in files from before torchvision 0.3
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")
# The names that parallel, compiled, sharded and checkpointed models add to those of their parts
_WRAPPERS = re.compile(
    r"(?<![^.])(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)


def add_weights(source: Source, request: ModelRequest) -> ModelWithWeights:
    if source.keeps_format and request.weights in ("random", "pretrained"):
        what = f"a model in memory has its weights, and `weights={request.weights!r}` others"
        raise RequestError(what, "leave it out, or give a file")
    if request.weights == "random":
        return _random(source, request, "the weights are RANDOM, as asked for")
    if request.weights == "auto":
        return source.load_as_made(request) or _trained_or_random(source, request)
    if request.weights in ("pretrained", *source.members):
        try:
            return source.load_trained(request, request.weights)
        except UNREACHABLE as error:
            raise WeightsError(
                f"cannot get the weights {request.weights} of {request.name}: {first_line(error)}",
                "use `weights='random'`, or a file: `weights=FILE`",
            ) from error
    return load_from_file(source, request)


def pin_weights(source: Source, request: ModelRequest, loaded: str) -> ModelRequest:
    """Return a request for the same weights in another process, called ``loaded`` in manifests."""
    if request.weights not in ("auto", "pretrained"):
        return request
    is_random = loaded.startswith("random ")
    return replace(request, weights="random" if is_random else source.pin(loaded))


def _trained_or_random(source: Source, request: ModelRequest) -> ModelWithWeights:
    why = source.explain_untrained(request)
    if not why:
        try:
            return source.load_trained(request, "pretrained")
        except UNREACHABLE as error:
            reason = str(getattr(error, "reason", None) or first_line(error))[:120].strip(" .")
            why = f"trained weights are neither cached nor reachable ({reason})"
    return _random(source, request, f"{why}: the weights are RANDOM")


def _random(source: Source, request: ModelRequest, warning: str) -> ModelWithWeights:
    module = build_random(source, request)
    return ModelWithWeights(
        module,
        f"random (seed {request.seed})",
        source.preset,
        source.list_categories(module),
        trained=False,
        warning=warning,
        sha256="" if source.is_known else hash_weights(module),
    )


def load_from_file(source: Source, request: ModelRequest) -> ModelWithWeights:
    name, key = split_key(request.weights)
    file, label = Path(name), str(Path(request.weights))
    _require_file(file, source, request)
    saved, sized = read_weights_file(file, key), request
    outline = build_shapes(source, request) if source.is_known else build_random(source, request)
    saved = fit_names(label, saved, _state_of(request, outline))
    if source.is_known:
        sized, outline = _size_like(source, request, outline, saved.tensors)
    expected = _state_of(request, outline)
    head = _judge(label, saved.tensors, expected, *_load(request, outline, saved))
    module = outline  # if it is the user's own, it has the weights already
    if source.is_known:
        module = build_unset(source, sized)
        drawn = build_random(source, sized).state_dict() if head else {}
        tensors = saved.tensors | {key: drawn[key] for key in head}
        _load(request, module, replace(saved, tensors=tensors))
    warning = f"{', '.join(head)} are not in {label}: they are RANDOM (seed {request.seed})"
    notes = (saved.note, source.adapt(request, module))
    categories, asked = source.list_categories(module), dict(sized.arguments).get("num_classes")
    return ModelWithWeights(
        module,
        label,
        source.preset,
        categories if asked in (None, str(len(categories))) else (),
        trained=not head,
        warning=warning if head else "",
        sha256=saved.sha256,
        notes=tuple(filter(None, notes)),
    )


def _require_file(file: Path, source: Source, request: ModelRequest) -> None:
    if os.path.isdir(file) or not os.path.exists(file):  # noqa: PTH110, PTH112  pathlib's may raise
        names = (*source.members, "auto", "pretrained", "random", "FILE")
        part, _, key = request.weights.rpartition(":")
        if part.endswith((".pth", ".pt", ".safetensors")):
            wrong = f"there is no file {part!r}" if key else "the key after the colon is missing"
            raise WeightsError(f"`weights={request.weights!r}`: {wrong}", "write FILE:KEY, or FILE")
        hint = f"{request.name} has: {', '.join(names)}"
        raise WeightsError(f"no weights and no file are called {request.weights!r}", hint)


def _load(
    request: ModelRequest, module: nn.Module, saved: WeightsFile
) -> tuple[Collection[str], Collection[str]]:
    # Hooks of the model may rename the tensors of the file, and its own method may do anything.
    expected = _state_of(request, module)
    others = {key: each for key, each in saved.others.items() if key in expected}
    # Some modules load nothing without a version. A module without one gets its class's version.
    state: OrderedDict[str, object] = OrderedDict({**saved.tensors, **others})
    versions = saved.versions
    vars(state)["_metadata"] = {  # the attribute in which torch keeps versions
        path: {"version": versions.get(path, versions.get(_bare(path), submodule._version))}
        for path, submodule in module.named_modules(remove_duplicate=False)
    }
    is_own = type(module).load_state_dict is not nn.Module.load_state_dict
    real = {key: p for key, p in module.named_parameters() if not (p.is_meta or is_lazy(p))}
    before = {key: each.detach().clone() for key, each in real.items()} if is_own else {}
    with ForeignCode(f"loading {request.weights} into {request.name}"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is a no-op")  # on the meta device
        try:
            found = module.load_state_dict(state, **({} if is_own else {"strict": False}))
        except RuntimeError as error:
            file, reason = str(Path(request.weights)), str(error).rpartition("\n\t")[2]
            check_fit(file, saved.tensors, expected)
            raise WeightsError(f"{file} does not fit the model: {reason}") from error
    same = [key for key, old in before.items() if found is None and _equal(old, real[key])]
    given = saved.tensors.values()
    kept = [key for key in same if not any(_equal(real[key], each) for each in given)]
    return ask(found, "missing_keys", kept), ask(found, "unexpected_keys", ())


def _equal(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and torch.equal(one, two.to(one.device, one.dtype))


def _judge(
    file: str,
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, object],
    lacking: Collection[str],
    unexpected: Collection[str],
) -> list[str]:
    """Raise a WeightsError unless the weights in ``file`` fit the model, except for its classifier.

    ``tensors`` maps the file's keys, and ``expected`` the model's keys, to weights. ``lacking`` are
    the model's keys that the file lacks, and ``unexpected`` the file's keys that the model lacks.
    Return the keys of the model's classifier if the file lacks the classifier, else an empty list.
    """
    # Only the batch counters of norms may be missing, too.
    missing = [key for key in expected if key in lacking and not _is_counter(key, lacking)]
    head = missing if _are_head(missing, expected, expected.keys() - {*lacking}) else []
    kept = {
        key: each
        for key, each in tensors.items()
        if key in unexpected or getattr(expected.get(key), "shape", None) == each.shape
    }
    wanted = {*kept, *missing} - ({*head} if not unexpected else set())
    check_fit(file, kept, {key: expected[key] for key in expected if key in wanted})
    return head


def _size_like(
    source: Source, request: ModelRequest, outline: nn.Module, tensors: Mapping[str, Tensor]
) -> tuple[ModelRequest, nn.Module]:
    """Build the model again, without values, with as many classes as the weights in the file have.

    ``outline`` is the model built for ``request``, and ``tensors`` are the weights in the file.
    Return a new request and a new model, or ``request`` and ``outline`` if the user chose the
    number of classes, or if no number makes the file fit.
    """
    if "num_classes" in dict(request.arguments):
        return request, outline
    counts = dict.fromkeys(
        len(tensors[key])
        for key, wanted in _tensors_of(_state_of(request, outline)).items()
        if key in tensors and tensors[key].dim() and tensors[key].shape != wanted.shape
    )
    for classes in list(counts)[:3]:
        sized = replace(request, arguments=(*request.arguments, ("num_classes", str(classes))))
        try:
            resized = build_shapes(source, sized)
        except (RequestError, ModelError):
            continue
        shapes = {key: value.shape for key, value in _tensors_of(_state_of(sized, resized)).items()}
        if all(tensors[key].shape == shapes[key] for key in tensors if key in shapes):
            return sized, resized
    return request, outline


def _state_of(request: ModelRequest, module: nn.Module) -> Mapping[str, object]:
    with ForeignCode(f"state_dict of {request.name}"):
        return module.state_dict()


def _tensors_of(state: Mapping[str, object]) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if isinstance(value, Tensor)}


def _is_counter(key: str, missing: Collection[str]) -> bool:
    return key.endswith(_COUNTER) and f"{key.removesuffix(_COUNTER)}running_mean" not in missing


def _are_head(
    missing: Collection[str], expected: Mapping[str, object], found: Collection[str]
) -> bool:
    # The head is the model's last top-level module, or one with a usual name such as ``fc``.
    if not found:
        return False
    last = list(expected)[-1].partition(".")[0]
    tops = {key.partition(".")[0] for key in missing}
    return len(missing) < len(expected) and all(top == last or _HEADS.match(top) for top in tops)


def fit_names(file: str, saved: WeightsFile, expected: Collection[str]) -> WeightsFile:
    # The file's names may have a prefix: a parallel model adds ``module.``, and a training class
    # the attribute that holds the model. Tensors without it, such as a criterion's, are left out.
    names = {_bare(key): key for key in expected}
    has_all = len(names) == len(expected)
    is_bare = has_all and len({*map(_bare, saved.tensors)}) == len(saved.tensors)
    strip = _bare if is_bare else str
    names = {strip(key): key for key in expected}
    tensors = {strip(key): value for key, value in saved.tensors.items()}
    prefix = _find_prefix(file, tensors, names)

    def rename(key: str) -> str:
        new = _new_name(key.removeprefix(prefix), names)
        return names.get(new, new)

    versions = {
        f"{strip(path)}.".removeprefix(prefix).removesuffix("."): saved.versions[path]
        for path in sorted(saved.versions, key=len)
        if f"{strip(path)}.".startswith(prefix)
    }
    others = [key for key in tensors if not key.startswith(prefix)]
    verb = "is" if len(others) == 1 else "are"
    left_out = f"{count(len(others), 'tensor')} of {file} {verb} not under {prefix!r}, and left out"
    notes = (saved.note, f"{left_out}: {name_some(others)}" if others else "")
    return replace(
        saved,
        tensors={rename(key): each for key, each in tensors.items() if key.startswith(prefix)},
        versions=versions,
        others={rename(strip(key)): value for key, value in saved.others.items()},
        note="; ".join(filter(None, notes)),
    )


def _bare(path: str) -> str:
    return _WRAPPERS.sub("", f"{path}.").removesuffix(".")


def _find_prefix(file: str, keys: Collection[str], expected: Collection[str]) -> str:
    """Return the prefix, such as ``module.``, that a file puts before the names in the model.

    ``keys`` are the names in the file, and ``expected`` are the names in the model. Return "" if as
    many names fit without a prefix, or if even the best prefix fits fewer than half of the names in
    the model. Raise a WeightsError if several prefixes fit equally many names.
    """
    needed = {key for key in expected if not key.endswith(_COUNTER)}
    found = Counter(prefix for key in keys for prefix in _list_prefixes(key, needed))
    most = max(found.values(), default=0)
    best = [prefix for prefix, names in found.items() if names == most]
    if "" in best or 2 * most < len(needed):
        return ""
    if len(best) > 1:
        what = f"{file} holds the weights of the model {len(best)} times: under {name_some(best)}"
        raise WeightsError(what, "choose one of them: `weights='FILE:KEY'`")
    return best[0]


def _list_prefixes(key: str, expected: Collection[str]) -> Iterator[str]:
    parts = key.split(".", _MOST_PARTS)
    for start in range(len(parts)):
        if _new_name(".".join(parts[start:]), expected) in expected:
            yield "".join(f"{part}." for part in parts[:start])


def check_fit(file: str, state: Mapping[str, Tensor], expected: Mapping[str, object]) -> None:
    # Kinds are floats, complex numbers, and integers. The values must also be in the range of the
    # model's dtype. Loading any other file would change values silently.
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    shared = {
        key: (state[key], wanted)
        for key, wanted in expected.items()
        if key in state and isinstance(wanted, Tensor) and not is_lazy(wanted)
    }
    misshaped = [
        f"{key} is {shape_text(saved.shape)} and not {shape_text(wanted.shape)}"
        for key, (saved, wanted) in shared.items()
        if saved.shape != wanted.shape
    ]
    changed = [
        f"{key} is {kind_name(saved.dtype)} and not {kind_name(wanted.dtype)}"
        for key, (saved, wanted) in shared.items()
        if saved.shape == wanted.shape and not _keeps_kind(key, saved, wanted.dtype)
    ]
    faults = {
        "missing": missing,
        "unexpected": unexpected,
        "of a different shape": misshaped,
        "of a different kind": changed,
    }
    wrong = [f"{len(keys)} {fault} ({name_some(keys)})" for fault, keys in faults.items() if keys]
    if wrong:
        raise WeightsError(
            f"{file} does not fit the model: {'; '.join(wrong)}",
            "is it for a different model? see the names with: `hookcli.layers(MODEL)`"
            if missing or unexpected or misshaped
            else "convert them, for example by tensor.real or tensor.float(), and save them again",
        )


def _new_name(key: str, expected: Collection[str]) -> str:
    renamed = _OLD_DENSENET.sub(r"\1\2.", key)
    return renamed if renamed in expected and key not in expected else key


def _keeps_kind(key: str, saved: Tensor, dtype: torch.dtype) -> bool:
    # Batch counters may change, and floats may be rounded.
    if saved.is_complex() or dtype.is_complex:
        return saved.is_complex() and dtype.is_complex
    if key.rpartition(".")[2] == _COUNTER:
        return True
    if saved.is_floating_point() != dtype.is_floating_point:
        return False
    if not dtype.is_floating_point:
        return torch.equal(saved.to(dtype).to(saved.dtype), saved)
    if saved.dtype.itemsize <= dtype.itemsize:
        return True
    return bool((saved.isfinite() == saved.to(dtype).isfinite()).all())  # no value overflows
