"""Clips: the frames of a folder."""

from __future__ import annotations

import numpy as np
from PIL import Image

from hookcli.images.read import read_images


def test_the_frames_of_a_clip_come_in_the_order_of_their_numbers(tmp_path):
    (tmp_path / "frames").mkdir()
    for number in range(1, 17):
        Image.new("L", (4, 4), number).save(tmp_path / "frames" / f"frame{number}.png")
    (clip,), _ = read_images([str(tmp_path / "frames")], clip_frames=16)
    shades = [np.asarray(frame)[0, 0, 0] for frame in clip.read().pictures]
    assert shades == list(range(1, 17))
