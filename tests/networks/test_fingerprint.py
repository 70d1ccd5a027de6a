"""The hash of the weights of a module."""

from __future__ import annotations

import hashlib
import struct

import pytest
import torch
from torch import nn

from hookcli.networks.fingerprint import hash_weights


def test_the_hash_of_weights_is_of_names_dtypes_shapes_and_bytes():
    part = nn.Conv2d(1, 2, 1)
    part.load_state_dict(
        {"weight": torch.tensor([1.5, -2]).view(2, 1, 1, 1), "bias": torch.ones(2)}
    )
    expected = b"dict 2\n'weight'\ntorch.float32 (2, 1, 1, 1)\n" + struct.pack("<2f", 1.5, -2)
    expected += b"'bias'\ntorch.float32 (2,)\n" + struct.pack("<2f", 1, 1)
    assert hash_weights(part) == hashlib.sha256(expected).hexdigest()
    assert hash_weights(part.to(memory_format=torch.channels_last)) == hash_weights(part)


FORMS = {
    "quantized": lambda k: torch.quantize_per_tensor(torch.arange(4.0) * k, 0.5, 3, torch.quint8),
    "sparse": lambda k: (torch.eye(3) * k).to_sparse(),
    "float8": lambda k: (torch.arange(4.0) * k).to(torch.float8_e4m3fn),
    "conjugate": lambda k: (torch.arange(4.0) * k * 1j).conj(),
    "one number": torch.tensor,
    "packed": lambda k: (torch.arange(4.0) * k, None),
}


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("name", FORMS)
def test_values_of_every_form_have_a_hash_and_others_another(name):
    class Holder(nn.Module):
        k = 1

        def get_extra_state(self):
            return FORMS[name](self.k)

    holder = Holder()
    first = hash_weights(holder)
    assert len(first) == 64
    assert hash_weights(holder) == first
    holder.k = 2
    assert hash_weights(holder) not in (first, "")


@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_quantized_modules_have_a_hash_of_their_packed_weights():
    torch.manual_seed(0)
    one, other = (
        torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
        for _ in range(2)
    )
    assert len({hash_weights(one), hash_weights(one), hash_weights(other)} - {""}) == 2


class Unheard(nn.Module):
    def get_extra_state(self):
        return object()


class Raising(nn.Module):
    def state_dict(self, *_args, **_options):
        raise KeyError("no")


@pytest.mark.parametrize(
    "module", [nn.LazyLinear(4), nn.Linear(2, 2, device="meta"), Unheard(), Raising()]
)
def test_weights_of_which_there_is_no_hash_have_an_empty_one(module):
    assert hash_weights(module) == ""


def test_the_name_of_a_compiled_part_is_not_hashed():
    plain, compiled = nn.ModuleDict(), nn.ModuleDict()
    part = nn.Conv2d(1, 1, 1)
    plain["a"] = part
    compiled["a"] = nn.ModuleDict({"_orig_mod": part})
    assert hash_weights(compiled) == hash_weights(plain)


@pytest.mark.gpu
def test_weights_on_a_gpu_have_the_hash_of_the_same_on_the_host():
    part = nn.Conv2d(3, 2, 1)
    expected = hash_weights(part)
    assert hash_weights(part.cuda()) == expected
