"""CIFAR-10 and SVHN in the layouts of their makers, and what is said of other files."""

import os
import pickle

import numpy as np
import pytest
import torch

from tests.experiments import stand_ins
from torch_boc.experiments.images import fetch_images, read_images

NAMES = {"cifar10_train": "train", "cifar10_test": "test", "svhn_test": "svhn"}


@pytest.mark.parametrize("name", NAMES)
def test_published_layouts(tmp_path, name):
    """Pickles of Python 2 and a MATLAB file give the pixels and the labels that went in, the digit 0 as 0."""
    expected, classes = stand_ins.write_images(tmp_path / "data")[NAMES[name]]
    pixels, labels = read_images(tmp_path / "data", name)
    assert (pixels.dtype, labels.dtype) == (torch.uint8, torch.int64)
    assert np.array_equal(pixels.numpy(), expected.transpose(0, 3, 1, 2))
    assert np.array_equal(labels.numpy(), classes)


def test_the_folder_itself_may_be_that_of_the_batches(image_folder):
    direct = read_images(image_folder / "cifar-10-batches-py", "cifar10_test")
    assert torch.equal(direct[0], read_images(image_folder, "cifar10_test")[0])


@pytest.mark.parametrize("bytes_keys", [False, True])
def test_batches_that_python_3_pickled_again(image_folder, bytes_keys):
    pixels, labels = read_images(image_folder, "cifar10_test")
    content = {"data": pixels.flatten(1).numpy(), "labels": labels.tolist(), "filenames": [b"a.png"]}
    content = {key.encode() if bytes_keys else key: value for key, value in content.items()}
    (image_folder / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    again = read_images(image_folder, "cifar10_test")
    assert torch.equal(again[0], pixels)
    assert torch.equal(again[1], labels)


def test_arrays(tmp_path):
    pixels, labels = stand_ins.pictures(7, 0)
    np.savez(tmp_path / "svhn_test.npz", x=pixels, y=labels)
    found = read_images(tmp_path, "svhn_test")
    assert np.array_equal(found[0].numpy(), pixels.transpose(0, 3, 1, 2))
    assert np.array_equal(found[1].numpy(), labels)


def test_svhn_in_a_folder_of_its_own(image_folder):
    expected = read_images(image_folder, "svhn_test")[0]
    (image_folder / "svhn").mkdir()
    (image_folder / "test_32x32.mat").rename(image_folder / "svhn" / "test_32x32.mat")
    assert torch.equal(read_images(image_folder, "svhn_test")[0], expected)


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("broken-into",)


def test_a_pickle_calls_nothing(image_folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (image_folder / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": Malicious()}))
    with pytest.raises(ValueError, match=r"test_batch: expected a batch of CIFAR-10 .* it asks for posix.mkdir"):
        read_images(image_folder, "cifar10_test")
    assert not (tmp_path / "broken-into").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("cifar-10-batches-py/test_batch", b"not a pickle"),
        ("cifar-10-batches-py/test_batch", pickle.dumps({"fine_labels": [1]})),
        ("cifar-10-batches-py/test_batch", pickle.dumps([1, 2])),
        ("cifar-10-batches-py/test_batch", b""),
        ("test_32x32.mat", b"nothing of MATLAB"),
        ("test_32x32.mat", b""),
    ],
)
def test_damaged_files(image_folder, file, content):
    (image_folder / file).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file}: expected .*, got "):
        read_images(image_folder, "svhn_test" if file.endswith("mat") else "cifar10_test")


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.zeros((3, 8, 8, 3), np.uint8)},
        {"x": np.zeros((3, 8, 8, 3), np.float32), "y": np.zeros(3, int)},
        {"x": np.zeros((3, 8, 8), np.uint8), "y": np.zeros(3, int)},
        {"x": np.zeros((3, 8, 8, 3), np.uint8), "y": np.zeros(2, int)},
        {"x": np.array([None]), "y": np.zeros(1, int)},
    ],
)
def test_arrays_of_another_kind(tmp_path, arrays):
    np.savez(tmp_path / "cifar10_test.npz", **arrays)
    with pytest.raises(ValueError, match=r"cifar10_test\.npz: expected "):
        read_images(tmp_path, "cifar10_test")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"cifar-10-batches-py/data_batch_1 or data_batch_1 or cifar10_train\.npz there"
    ):
        read_images(tmp_path, "cifar10_train")
    with pytest.raises(FileNotFoundError, match=r"test_32x32\.mat or svhn/test_32x32\.mat or svhn_test\.npz there"):
        read_images(tmp_path, "svhn_test")


def test_what_is_there_is_not_downloaded(image_folder, offline):
    assert len(fetch_images(image_folder, "cifar10_train", "--data-dir")[0]) == stand_ins.TRAIN


@pytest.mark.parametrize(("name", "what"), [("cifar10_test", "CIFAR-10"), ("svhn_test", "the test digits of SVHN")])
def test_offline(tmp_path, offline, name, what):
    with pytest.raises(ConnectionError, match=rf"could not fetch {what} \(.*Name or service not known") as caught:
        fetch_images(tmp_path, name, "--data-dir FOLDER")
    assert str(caught.value).endswith("or give local copies with --data-dir FOLDER")


def test_downloads_are_read_from_where_they_go(tmp_path, monkeypatch):
    def download(url, folder, *args, **kwargs):
        assert url.startswith("http")
        stand_ins.write_images(tmp_path / "other")
        (tmp_path / "other").rename(folder)

    monkeypatch.setattr("torchvision.datasets.utils.download_and_extract_archive", download)
    assert len(fetch_images(tmp_path / "data", "cifar10_test", "")[0]) == stand_ins.TEST
    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    (tmp_path / "data").rename(tmp_path / "away")
    assert len(fetch_images(tmp_path / "data", "svhn_test", "")[0]) == stand_ins.OOD
