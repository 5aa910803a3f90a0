"""The portions of the paper: sizes, disjoint, drawn with a seed; a smaller one begins a larger one."""

import pytest
import torch

from torch_boc.experiments import EXPERIMENTS, Samples, portions


def numbered(name, count):
    return Samples(name, [f"{name} {i}" for i in range(count)], torch.arange(count) % 4)


def sizes(sets):
    return [len(part) for part in sets]


@pytest.mark.parametrize(
    ("train", "calibration", "rest"), [(50_000, 5_000, 45_000), (120_000, 12_000, 108_000), (43_409, 4_341, 39_068)]
)
def test_the_sizes_of_the_paper(train, calibration, rest):
    sets = portions(numbered("train", train), numbered("test", 12), numbered("ood", 15))
    assert sizes(sets) == [12, 15, calibration, rest]
    assert not set(sets.calibration.inputs) & set(sets.train.inputs)
    assert len({*sets.calibration.inputs, *sets.train.inputs}) == train


def test_targets_stay_with_their_samples_and_those_of_ood_data_are_dropped():
    sets = portions(numbered("train", 100), numbered("test", 12), numbered("ood", 15))
    for part in (sets.id, sets.calibration, sets.train):
        assert part.target.tolist() == [int(text.split()[1]) % 4 for text in part.inputs]
    assert sets.ood.target is None
    assert sorted(sets.id.inputs) == sorted(numbered("test", 12).inputs)
    assert sorted(sets.ood.inputs) == sorted(numbered("ood", 15).inputs)


def test_the_seed_decides():
    data = numbered("train", 100), numbered("test", 12), numbered("ood", 15)
    first, again, other = (portions(*data, seed=seed) for seed in (42, 42, 43))
    assert [part.inputs for part in first] == [part.inputs for part in again]
    assert [part.key for part in first] == [part.key for part in again]
    assert set(first.calibration.inputs) != set(other.calibration.inputs)
    assert not {part.key for part in first} & {part.key for part in other}
    order = torch.randperm(100, generator=torch.Generator().manual_seed(42))
    assert first.calibration.inputs == [f"train {i}" for i in order[:10]]


def test_a_smaller_set_begins_a_larger_one():
    data = numbered("train", 100), numbered("test", 12), numbered("ood", 15)
    whole, few, less = portions(*data), portions(*data, samples=5), portions(*data, samples=50, train_samples=7)
    assert (sizes(few), sizes(less)) == ([5, 5, 5, 5], [12, 15, 10, 7])
    for part in (few, less):
        assert [x.key for x in part] == [x.key for x in whole]
        assert all(small.inputs == large.inputs[: len(small)] for small, large in zip(part, whole, strict=True))


def test_images_are_cut_in_the_same_way():
    pixels = torch.arange(100, dtype=torch.uint8).view(100, 1, 1, 1).expand(100, 3, 2, 2)
    data = Samples("train", pixels, torch.arange(100) % 10)
    sets = portions(data, data, data)
    seen = [part.inputs[:, 0, 0, 0].tolist() for part in sets]
    assert sorted(seen[2] + seen[3]) == list(range(100))
    assert sets.train.target.tolist() == [i % 10 for i in seen[3]]


def test_other_inputs_have_other_keys():
    data = numbered("test", 12), numbered("ood", 15)
    keys = [portions(numbered("train", n), *data).train.key for n in (100, 101)]
    assert keys[0] != keys[1]


def test_too_few():
    with pytest.raises(ValueError, match="train: expected at least 10 samples, a tenth to calibrate on, got 4"):
        portions(numbered("train", 4), numbered("test", 12), numbered("ood", 15))


def test_the_settings_of_the_paper():
    assert {name: (x.batch_size, x.odin, len(x.classes)) for name, x in EXPERIMENTS.items()} == {
        "vit": (128, True, 10),
        "resnet": (256, True, 10),
        "roberta": (64, False, 4),
    }
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())
