"""Data of every kind, and a machine without network."""

import socket

import pytest

from tests.experiments import stand_ins


@pytest.fixture
def image_folder(tmp_path):
    stand_ins.write_images(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def text_folder(tmp_path):
    stand_ins.write_texts(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No name is resolved, and nothing is in the caches of others; the folder of the Hugging Face cache."""

    def fail(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"
