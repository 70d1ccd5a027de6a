"""Reading a finished run in Python: its activations as arrays, its tables as rows. No torch.

run = load_run("hookcli-runs/resnet34-photos")
features = run["avgpool"]  # (images, …), in the order of run.images
"""

from hookcli.runs.loading import Run, choose_calls, load_run
from hookcli.runs.shards import SavedTensor

__all__ = ["Run", "SavedTensor", "choose_calls", "load_run"]
