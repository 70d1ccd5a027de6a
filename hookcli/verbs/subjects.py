"""List the commands by subject, each with its line in ``hookcli --help``."""

from __future__ import annotations

ANALYSES = "Analyse a run"
SUBJECTS = {
    "Look inside": {
        "inspect": "Write feature maps and statistics, and a page to look at.",
        "gradients": "Write gradients, Grad-CAM and saliency.",
        "layers": "List a model's layers: shapes, cost, traps for hooks.",
        "models": "List models and their weights, or download some.",
        "ablate": "Zero channels one by one, and rank them by their effect.",
        "sensitivity": "Round layers one by one, and rank them by what it costs.",
    },
    "Compare": {
        "compare": "Run a model in two ways: which layer differs first.",
        "golden": "Write a run as one small file, to compare with later runs.",
        "diff": "Compare two runs: which layer differs first, and by how much.",
    },
    ANALYSES: {
        "places": "Colour the places of a layer by components, and match them.",
        "map": "Lay out images by their features: neighbours, outliers.",
        "probe": "Find the layer that knows a label.",
        "similarity": "Compare every pair of layers: which compute the same?",
    },
    "Use a run": {
        "report": "Make the page of a run again.",
        "export": "Write saved tensors as .npy or .csv files.",
        "schema": "Print the JSON Schema of outputs and files.",
    },
}
COMMANDS = {name: text for commands in SUBJECTS.values() for name, text in commands.items()}
