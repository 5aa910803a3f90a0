"""The script that made the entries: it resumes, and gives the stored numbers again."""

from pathlib import Path

import pytest
import torch

from benchmarks.paper.models import load_resnet
from benchmarks.recipes.entries import Cache
from benchmarks.recipes.zoo import compute_logits, compute_odin, read_images
from torch_boc import zoo

DATA = Path(__file__).parents[4] / "shared" / "data"


def test_cache_goes_on_where_it_was(tmp_path):
    images, seen = torch.arange(25.0), []

    def twice(x: torch.Tensor) -> torch.Tensor:
        if x[0] == 20 and len(seen) < 3:
            seen.append("interrupted")
            raise KeyboardInterrupt
        seen.append(len(x))
        return 2 * x

    cache = Cache(tmp_path / "new", piece=10)
    with pytest.raises(KeyboardInterrupt):
        cache("logits", images, twice)
    torch.testing.assert_close(cache("logits", images, twice), 2 * images)
    torch.testing.assert_close(cache("logits", images, twice), 2 * images)
    assert seen == [10, 10, "interrupted", 5]
    assert len(list((tmp_path / "new" / "logits").iterdir())) == 3


def test_missing_data_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected a folder with load.py, got"):
        read_images(tmp_path, "cifar10_test")


@pytest.mark.skipif(not DATA.exists(), reason="needs the public images and checkpoint")
def test_stored_logits_are_those_of_the_model():
    entry, model = zoo.load("resnet20-cifar10"), load_resnet(DATA / "cifar10_resnet20.th").eval()
    pixels, target = read_images(DATA, "cifar10_test")
    assert torch.equal(target, entry.id.target)
    logits = compute_logits(model, pixels[:64])
    torch.testing.assert_close(entry.id.logits[:64], logits, rtol=2**-11, atol=1e-4)
    torch.testing.assert_close(
        entry.id.columns["odin"][:64], compute_odin(model, pixels[:64]).float(), rtol=1e-5, atol=0
    )
