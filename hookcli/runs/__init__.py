"""Reading a finished run in Python: its activations as arrays, its tables as rows. No torch.

run = load_run("hookcli-runs/resnet34-photos")
features = run["avgpool"]  # (images, …), in the order of run.images
"""

from hookcli.runs.loading import Run, choose_calls, load_run
from hookcli.runs.pairs import measure_pair
from hookcli.runs.shards import SavedTensor
from hookcli.runs.sides import Side, SideCall, load_side, match_images

__all__ = [
    "Run",
    "SavedTensor",
    "Side",
    "SideCall",
    "choose_calls",
    "load_run",
    "load_side",
    "match_images",
    "measure_pair",
]
