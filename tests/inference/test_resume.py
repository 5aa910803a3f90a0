"""A resumed run gives the rows of this model on these samples, or an error: never those of another run."""

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.inference.cases import Counting, Loader, assert_same, data, expected, files, predictor, read


class Tempered(Counting):
    """A head with more than eight weights, and a temperature that is a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = 1.0
        self.register_buffer("shift", torch.zeros(5), persistent=False)

    def forward(self, x):
        return super().forward(x) / self.temperature + self.shift


def interrupted(path, model=None, loader=None, **options):
    """A run that was stopped after three of six batches."""
    with pytest.raises(KeyboardInterrupt):
        predictor(model or Tempered(), **options).to_parquet(loader or Loader(healthy=3), path, resume=True)


def finished(path, model=None, loader=None, **options):
    predictor(model or Tempered(), **options).to_parquet(Loader(), path, resume=True)


def late_weight(model):
    assert model.layer.weight.numel() > 8
    with torch.no_grad():
        model.layer.weight[-1, -1] += 1


def heated(model):
    model.temperature = 2.0


def shifted(model):
    model.shift += 1


class Other(Loader):
    """The same but for one sample or one target among the first three batches."""

    def __init__(self, part, place):
        super().__init__()
        self.batches[place][part][1] += 1


MODELS = {
    "a weight beyond the first eight": (late_weight, "'weights': "),
    "a buffer that no checkpoint keeps": (shifted, "'weights': "),
    "an attribute": (heated, "'attributes of the model': .*if the forward itself changes them"),
}
SAMPLES = {
    "the first sample": (lambda: Other(0, 0), "different inputs"),
    "a later sample": (lambda: Other(0, 2), "different inputs"),
    "a target": (lambda: Other(1, 2), "different targets"),
    "the order": (lambda: [*Loader().batches[1::-1], *Loader().batches[2:]], "different inputs and different targets"),
    "no targets": (lambda: [x for x, _ in Loader().batches], "different targets"),
}
OPTIONS = {
    "trials": ({"trials": 50}, "'trials': 100.*'trials': 50"),
    "dtype": ({"dtype": torch.bfloat16}, "'dtype': 'None'.*bfloat16"),
}


@pytest.mark.parametrize("start", [interrupted, finished])
@pytest.mark.parametrize(("change", "message"), MODELS.values(), ids=MODELS.keys())
def test_another_model_is_an_error(start, change, message, tmp_path):
    path = tmp_path / "samples.parquet"
    start(path)
    before = files(tmp_path)
    model = Tempered()
    change(model)
    with pytest.raises(ValueError, match=f"expected the run that .*samples.parquet.*{message}.*delete"):
        predictor(model).to_parquet(Loader(), path, resume=True)
    assert model.calls == []
    assert files(tmp_path) == before


@pytest.mark.parametrize("start", [interrupted, finished])
@pytest.mark.parametrize(("loader", "message"), SAMPLES.values(), ids=SAMPLES.keys())
def test_other_samples_are_an_error(start, loader, message, tmp_path):
    path, model = tmp_path / "samples.parquet", Tempered()
    start(path)
    with pytest.raises(ValueError, match=rf"expected the \d+ samples of .*samples.parquet.*got {message};.*delete"):
        predictor(model).to_parquet(loader(), path, resume=True)
    assert model.calls == []
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert_same(read(path), expected(model.layer(data()[0]), data()[1]))


@pytest.mark.parametrize("start", [interrupted, finished])
@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS.keys())
def test_other_settings_are_an_error(start, options, message, tmp_path):
    path = tmp_path / "samples.parquet"
    start(path)
    with pytest.raises(ValueError, match=message):
        predictor(Tempered(), **options).to_parquet(Loader(), path, resume=True)


def test_another_length_is_an_error(tmp_path):
    path = tmp_path / "samples.parquet"
    finished(path)
    with pytest.raises(ValueError, match=r"'batches': 6.*'batches': 5.*leave resume=True out, or delete it"):
        predictor(Tempered()).to_parquet(Loader(samples=19), path, resume=True)


class Stream(IterableDataset):
    """Knows no length."""

    def __init__(self, samples):
        self.samples = list(zip(*(x[:samples] for x in data()), strict=True))

    def __iter__(self):
        yield from self.samples


def test_an_iterable_data_set_that_has_grown(tmp_path):
    path = tmp_path / "samples.parquet"
    predictor().to_parquet(Stream(19), path, resume=True)
    with pytest.raises(ValueError, match=r"expected the 19 samples of .*, got 23 samples"):
        predictor().to_parquet(Stream(23), path, resume=True)
    model = Counting()
    predictor(model).to_parquet(Stream(19), path, resume=True)
    assert model.calls == []
    predictor(model).to_parquet(Stream(23), path)
    assert len(read(path)["index"]) == 23


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_run_is_not_repeated(resume, tmp_path):
    path = tmp_path / "samples.parquet"
    predictor().to_parquet(Loader(), path, resume=resume)
    before = path.read_bytes()
    model = Counting()
    assert predictor(model).to_parquet(Loader(), path, resume=True) == path
    assert model.calls == []
    assert path.read_bytes() == before
    predictor(model).to_parquet(DataLoader(TensorDataset(*data()), 5), path)
    assert sum(model.calls) == 23


def test_files_of_others_are_not_taken_for_a_run(tmp_path):
    path = tmp_path / "samples.parquet"
    path.write_text("not Parquet")
    with pytest.raises(ValueError, match=r"expected a whole Parquet file, got .*samples.parquet .*leave resume=True"):
        predictor().to_parquet(Loader(), path, resume=True)
    parquet.write_table(arrow.table({"index": [1, 2]}), path)
    with pytest.raises(ValueError, match=r"expected a file that says which run wrote it, got .*leave resume=True out"):
        predictor().to_parquet(Loader(), path, resume=True)
    assert parquet.read_table(path).num_rows == 2


def test_a_run_id_replaces_the_comparison(tmp_path):
    path, model = tmp_path / "samples.parquet", Tempered()
    with pytest.raises(KeyboardInterrupt):
        predictor(Tempered()).to_parquet(Loader(healthy=3), path, resume=True, run_id="v1")
    late_weight(model)
    predictor(model).to_parquet(Other(0, 0), path, resume=True, run_id="v1")
    assert model.calls == [4, 4, 3]
    predictor(model).to_parquet(Loader(healthy=0), path, resume=True, run_id="v1")  # not even read
    with pytest.raises(ValueError, match=r"'run_id': 'v1'.*'run_id': 'v2'"):
        predictor(model).to_parquet(Loader(), path, resume=True, run_id="v2")
    with pytest.raises(ValueError, match=r"'run_id': 'v1'.*'run_id': None"):
        predictor(model).to_parquet(Loader(), path, resume=True)
    with pytest.raises(ValueError, match=r"'trials': 100.*'trials': 7"):
        predictor(model, trials=7).to_parquet(Loader(), path, resume=True, run_id="v1")


def test_what_cannot_be_known_is_said_where_it_matters(tmp_path):
    path = tmp_path / "samples.parquet"

    def make():
        model = Counting()
        model.helper = object()
        return model

    interrupted(path, make())  # nothing to compare yet: warnings are errors here
    with pytest.warns(UserWarning, match=r"cannot tell whether helper \(object\) changed .*run_id="):
        predictor(make()).to_parquet(Loader(), path, resume=True)
    with pytest.warns(UserWarning, match="cannot tell whether helper"):
        predictor(make()).to_parquet(Loader(), path, resume=True)
    for _ in range(2):
        predictor(make()).to_parquet(Loader(), tmp_path / "named.parquet", resume=True, run_id="mine")


def test_a_model_that_changes_its_inputs(tmp_path):
    class Overwriting(Counting):
        def forward(self, x):
            return super().forward(x.mul_(2))

    path = tmp_path / "samples.parquet"
    with pytest.raises(KeyboardInterrupt):
        predictor(Overwriting()).to_parquet(Loader(healthy=3), path, resume=True)
    model = Overwriting()
    predictor(model).to_parquet(Loader(), path, resume=True)
    assert_same(read(path), expected(model.layer(2 * data()[0]), data()[1]))


class Both(nn.Module):
    """Two inputs, one of them for the whole batch, and a switch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Counting()

    def forward(self, x, mask=None, *, bias=0.0, double=False):
        return self.layer(x * mask + bias) * (2 if double else 1)


def mappings(size, healthy=99, **changes):
    x, y = data()
    rows = {"x": x, "mask": torch.ones(23, 3, dtype=torch.uint8)}
    for i, (part, mask, labels) in enumerate(zip(x.split(size), rows["mask"].split(size), y.split(size), strict=True)):
        if i == healthy:
            raise KeyboardInterrupt
        yield {"x": part, "mask": mask, "bias": torch.ones(1, 3), "double": True, "labels": labels} | changes


OTHERS = {
    "dtype": {"mask": torch.ones(4, 3)},
    "shape": {"mask": torch.ones(4, 1, dtype=torch.uint8)},
    "of the batch": {"bias": torch.zeros(1, 3)},
    "switch": {"double": False},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS.keys())
def test_every_argument_of_the_model_counts(changes, tmp_path):
    path = tmp_path / "samples.parquet"
    with pytest.raises(KeyboardInterrupt):
        predictor(Both()).to_parquet(mappings(4, 3), path, resume=True)
    with pytest.raises(ValueError, match="different inputs;"):
        predictor(Both()).to_parquet(mappings(4, **changes), path, resume=True)
    model = Both()
    predictor(model).to_parquet(mappings(5), path, resume=True)
    assert model.layer.calls == [3, 5, 3], "in batches of another size"


def test_a_loader_that_fills_the_same_memory_again(tmp_path):
    x, y = torch.empty(4, 3), torch.empty(4, dtype=torch.long)

    def reusing():
        for inputs, targets in Loader(samples=20).batches:
            yield x.copy_(inputs), y.copy_(targets)

    model = Counting()
    path = predictor(model).to_parquet(reusing(), tmp_path / "samples.parquet")
    assert_same(read(path), expected(model.layer(data(20)[0]), data(20)[1]))
