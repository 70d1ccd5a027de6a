"""The same folder run on Ray: the bytes of a run on one machine, whoever is killed meanwhile.

A cluster here is a head without cores and two nodes, each with processes of their own, on this
machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from tests.conftest import own_state
from tests.toy_models import SLOW_NET
from tests.world.test_folders import assert_same_folders, draw, photos

pytestmark = pytest.mark.cluster

PATIENCE = 100  # seconds
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
COMMON = ("--weights", "random", "--device", "cpu", "--size", "64", "--batch-size", "4")
RESNET = ("resnet18", *COMMON, "--layers", "all", "--grids", "none")
SLOW = ("net.py:make", *COMMON, "--layers", "conv")
SQUEEZE = ("squeezenet1_1", *COMMON, "--layers", "conv", "--grids", "sheet")


@pytest.fixture(scope="module", autouse=True)
def credentials():
    """Whoever asks for them finds them in the environment, also a node that joins later."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, credentials):
    """A head without cores, and two nodes of one core each."""
    ray = pytest.importorskip("ray")  # not at the top: that takes seconds wherever tests are listed
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("TORCH_HOME", str(tmp_path_factory.mktemp("torch")))
        patch.setenv("NAP", "0.1")  # seconds that the slow model takes for a batch
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Pictures, and runs of them on one machine with one thread."""
    home = tmp_path_factory.mktemp("home")
    with own_state(home):
        Path("net.py").write_text(SLOW_NET)
        photos(300)
        draw("some/nothing.png", 1)
        Path("some/broken.png").write_bytes(b"no picture")
        for number in range(70):
            draw(f"some/p{number:03}.png", number)
    return home


def hookcli(home, *words, code=0, **how):
    done = subprocess.run(
        [sys.executable, "-m", "hookcli", *map(str, words)],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=os.environ | {"COLUMNS": "100"},
        **how,
    )
    assert done.returncode == code, done.stderr
    return done


def on(cluster):
    return ("--cluster", cluster.address)


@pytest.fixture
def session(cluster, monkeypatch):
    """A folder with a short name for what Ray writes."""
    with TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("every layer", (*RESNET, "some", "--save", "tensors", "--pool", "mean")),
        pytest.param("sheets", (*SQUEEZE, "some", "--sketch"), marks=pytest.mark.slow),
    ],
)
def test_a_run_on_a_cluster_has_the_bytes_of_one_on_this_machine(home, cluster, name, words):
    hookcli(home, "inspect", *words, "--threads", 1, "-o", f"{name} here", code=6)
    hookcli(home, "inspect", *words, *on(cluster), "-o", f"{name} there", code=6)
    assert_same_folders(home / f"{name} here", home / f"{name} there")


def test_a_cluster_that_is_started_for_a_run_leaves_nothing_behind(home, session):
    words = ("gradients", *SQUEEZE[:7], "photos/p00*", "--saliency", "--layers", "conv[1:3]")
    hookcli(home, *words, "--threads", 1, "-o", "auto here")
    hookcli(home, *words, "--cluster", "auto", "-o", "auto there")
    assert_same_folders(home / "auto here", home / "auto there")
    assert list(session.iterdir()) == []


def list_workers():
    """The processes of the workers that run chunks."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "ray::Worker" in line]


def start(home, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "hookcli", *map(str, words)],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell makes what it starts in the background ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture(scope="module")
def whole(home):
    """A run over all pictures on this machine."""
    hookcli(home, "inspect", *SLOW, "photos", "--threads", 1, "-o", "whole")
    return home / "whole"


def test_workers_that_are_killed_are_replaced_and_every_image_comes_once(home, cluster, whole):
    most = 2
    words = ("inspect", *SLOW, "photos", *on(cluster), "-o", f"killed {most}")
    running = start(home, *words)
    dice, kills, ended = random.Random(1), 0, threading.Event()

    said = []

    def wait():
        said.extend(running.communicate())
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    parts = home / f"killed {most}/parts"
    while not ended.wait(0.5) and kills < most:
        done = len([file for file in parts.glob("*.json") if file.stem.isdecimal()])
        if (workers := list_workers()) and kills < 2 * done:
            os.kill(dice.choice(workers), signal.SIGKILL)
            kills += 1
    thread.join(PATIENCE)
    assert running.returncode == 0, said
    assert "\x1b" not in "".join(said)  # Ray's lines about them have no colours
    assert kills == most
    assert_same_folders(whole, home / f"killed {most}")


def test_the_users_own_code_and_weights_travel_to_nodes_that_lack_them(home, cluster):
    """Only the driver sees the folder in which it is: the nodes were started outside."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not mount")
    (home / "hidden").mkdir()
    names = {}
    exec(SLOW_NET, names)  # noqa: S102
    torch.save(names["make"]().state_dict(), home / "net.pth")
    words = ("inspect", "net.py:make", home / "some", "--weights", "net.pth", "--layers", "conv")
    tool = [sys.executable, "-m", "hookcli", *words, *on(cluster), "-o", home / "travelled"]
    hide = "mount -t tmpfs none hidden && mv net.pth hidden && cp net.py hidden && cd hidden"
    script = f'{hide} && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *map(str, tool)],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 6, done.stderr
    assert not (home / "hidden/net.py").exists()
    assert "net.pth" in (home / "travelled/manifest.json").read_text()
    assert (home / "travelled/manifest.json").exists()


@pytest.fixture(scope="module")
def s3(home):
    """A storage on this machine with the pictures in it, and the options to use it."""
    s3fs = pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    names = zip(("key", "secret"), CREDENTIALS.values(), strict=True)
    filesystem = s3fs.S3FileSystem(endpoint_url=url, skip_instance_cache=True, **dict(names))
    filesystem.mkdir("bucket")
    filesystem.put(str(home / "some"), "bucket", recursive=True)
    yield filesystem, ("--storage-option", f"endpoint_url={url}")
    server.stop()


def test_images_and_run_folder_may_be_on_s3(home, cluster, s3):
    filesystem, options = s3
    words = ("inspect", *SQUEEZE, "s3://bucket/some", "--sketch", *options)
    hookcli(home, *words, "--threads", 1, "-o", "s3 here", code=6)
    hookcli(home, *words, *on(cluster), "-o", "s3://bucket/run", code=6)
    filesystem.invalidate_cache()
    filesystem.get("bucket/run/", str(home / "s3 there"), recursive=True)
    assert_same_folders(home / "s3 here", home / "s3 there")


def test_a_driver_on_s3_that_is_killed_is_followed_by_another(home, cluster, s3, whole):
    filesystem, options = s3
    words = ("inspect", *SLOW, "photos", *options, *on(cluster), "-o", "s3://bucket/killed")
    running = start(home, *words)
    end = time.monotonic() + PATIENCE
    while not filesystem.exists("bucket/killed/parts/000001.json"):
        assert time.monotonic() < end
        assert running.poll() is None, running.communicate()
        filesystem.invalidate_cache()
        time.sleep(0.2)
    running.kill()
    running.communicate()
    refused = hookcli(home, *words, "--resume", code=5).stderr
    assert f"another run is writing into 's3://bucket/killed': process {running.pid} on " in refused
    lock = "bucket/killed/lock/000001.json"
    held = json.loads(filesystem.cat_file(lock)) | {"expires": 0}  # a minute goes by
    filesystem.pipe_file(lock, json.dumps(held).encode())
    resumed = hookcli(home, *words, "--resume")
    assert "continuing after " in resumed.stderr
    filesystem.invalidate_cache()
    filesystem.get("bucket/killed/", str(home / "s3 killed"), recursive=True)
    assert_same_folders(whole, home / "s3 killed")
