"""Loaders by index and by name, and what is said when one is not there or Lightning wants more."""

import traceback

import pytest
from lightning.pytorch.utilities import CombinedLoader

from tests.lightning.cases import LIBRARIES, QUIET, classifier, expected, loader, perceptron, points, trainer
from torch_boc.lightning import BoCCallback
from torch_boc.lightning.loaders import check_ood

pytestmark = QUIET
KNOWN, NEAR, FAR = points(60, 1, 3.0), points(25, 2, 0.5), points(33, 3, 9.0)
library = LIBRARIES["lightning"]


def named():
    return {"cifar": loader(KNOWN), "svhn": loader(NEAR), "dtd": loader(FAR)}


def validated(tmp_path, loaders, which=library, **options):
    module = classifier(which, perceptron())
    run = trainer(which, tmp_path, BoCCallback(keys=("gap",), scores=("msp",), **options))
    run.validate(module, loaders, verbose=False)
    return run.callback_metrics, module


@pytest.mark.parametrize("which", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize(
    ("ood", "names"),
    [
        ({1: "svhn"}, ("svhn", None)),
        ({"svhn": 1}, ("svhn", None)),
        ({"svhn": 1, 2: "far"}, ("svhn", "far")),
        (["dtd"], (None, "dtd")),
        (("svhn", "dtd"), ("svhn", "dtd")),
        ({"svhn": "digits", "dtd": "textures"}, ("digits", "textures")),
        ({"svhn": "dtd", "dtd": "svhn"}, ("dtd", "svhn")),
    ],
)
def test_loaders_of_a_dict_by_index_and_name(which, ood, names, tmp_path):
    values, module = validated(tmp_path, named(), which, ood=ood)
    for name, other, data in zip(names, ("svhn", "dtd"), (NEAR, FAR), strict=True):
        prefix = f"val/boc/{name or other}/"
        assert values[f"{prefix}gap"].item() == pytest.approx(expected(module, data)["gap"])
        assert (f"{prefix}msp_auroc" in values) == (name is not None)


@pytest.mark.parametrize("combined", [False, True])
def test_loaders_of_nested_dicts(combined, tmp_path):
    loaders = {"cifar": loader(KNOWN), "ood": {"svhn": loader(NEAR), "dtd": loader(FAR)}}
    loaders = CombinedLoader(loaders, "sequential") if combined else loaders
    values, module = validated(tmp_path, loaders, ood={"ood/dtd": "dtd"})
    assert values["val/boc/dtd/gap"].item() == pytest.approx(expected(module, FAR)["gap"])
    assert values["val/boc/ood/svhn/gap"].item() == pytest.approx(expected(module, NEAR)["gap"])
    assert "val/boc/dtd/msp_auroc" in values


def test_loaders_of_a_list_have_the_names_of_lightning(tmp_path):
    values, _ = validated(tmp_path, [loader(KNOWN), loader(NEAR)], ood={"dataloader_idx_1": "svhn"})
    assert "val/boc/svhn/msp_auroc" in values


def test_names_are_those_of_the_loop_that_runs(tmp_path):
    """Lightning goes on to show the loaders of the fit while others are validated."""
    module, callback = classifier(library, perceptron()), BoCCallback(keys=("gap",), ood=["svhn"])
    run = trainer(library, tmp_path, callback)
    run.fit(module, loader(KNOWN), named())
    run.validate(module, {"cifar": loader(KNOWN), "dtd": loader(FAR), "svhn": loader(NEAR)}, verbose=False)
    assert run.callback_metrics["val/boc/svhn/gap"].item() == pytest.approx(expected(module, NEAR)["gap"])
    assert run.callback_metrics["val/boc/dtd/gap"].item() == pytest.approx(expected(module, FAR)["gap"])


@pytest.mark.parametrize(
    ("ood", "message"),
    [
        ("svhn", "expected ood as .* a list of names of loaders.*got 'svhn'"),
        (3, "expected ood as .*got 3"),
        ({0: "svhn"}, "loader 0 is the in-distribution one"),
        ({"svhn": 0}, "loader 0 is the in-distribution one"),
        ({-1: "svhn"}, "expected ood as"),
        ({True: "svhn"}, "expected ood as"),
        ({1: 2}, "expected ood as"),
        ({"svhn": None}, "expected ood as"),
        ([1], "expected ood as"),
        ({1: "svhn", 2: "svhn"}, "under a different name each"),
        ({1: "svhn", "digits": 1}, "each ood loader once"),
        (["svhn", "svhn"], "each ood loader once"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(ood, message):
    with pytest.raises(ValueError, match=message):
        BoCCallback(ood=ood)


def test_what_can_be_meant():
    assert check_ood(None) == check_ood({}) == check_ood([]) == {}
    assert BoCCallback(ood={"svhn": 1}).ood == {1: "svhn"}


MISSING = {
    "index": (lambda: loader(KNOWN), {1: "near"}, r"expected ood loader 1 in val, got 1 in all: 0 'dataloader_idx_0'"),
    "name": (
        named,
        ["svnh"],
        "expected ood loader 'svnh' in val, got 3 in all: 0 'cifar', 1 'svhn', 2 'dtd'; did you mean 'svhn'",
    ),
    "list": (
        lambda: [loader(KNOWN), loader(NEAR)],
        ["svhn"],
        "expected ood loader 'svhn' in val, got 2 in all: 0 'dataloader_idx_0', 1 'dataloader_idx_1'",
    ),
    "at once": (
        lambda: CombinedLoader({"cifar": loader(KNOWN), "svhn": loader(NEAR)}, "min_size"),
        ["svhn"],
        "expected ood loader 'svhn' in val, got 1 in all: 0 'combined'; .*one after the other",
    ),
    "first": (named, ["cifar"], "expected the in-distribution loader first in val, got 'cifar', which is given as ood"),
    "twice": (named, {1: "dtd"}, "a different name for each loader in val, got 'cifar', 'dtd', 'dtd'"),
}


@pytest.mark.parametrize("case", MISSING)
@pytest.mark.parametrize("checks", [2, 0], ids=["sanity check", "no sanity check"])
def test_wrong_loaders_are_an_error_before_training(case, checks, tmp_path):
    loaders, ood, message = MISSING[case]
    module, run = (
        classifier(library, perceptron()),
        trainer(library, tmp_path, BoCCallback(ood=ood), num_sanity_val_steps=checks),
    )
    with pytest.raises(ValueError, match=message) as error:
        run.fit(module, loader(KNOWN), loaders())
    assert run.global_step == 0
    assert not hasattr(error.value, "__notes__")  # the message says it already
    if case in ("index", "name", "list"):
        assert "def validation_step(self, batch, batch_idx, dataloader_idx=0)" in str(error.value)
        assert "'val/loss' to 'val/loss/dataloader_idx_0'" in str(error.value)
        assert "add_dataloader_idx=False" in str(error.value)


@pytest.mark.parametrize("case", ["index", "name", "first", "twice"])
@pytest.mark.parametrize("stage", ["validate", "test"])
def test_wrong_loaders_of_other_loops_are_said(case, stage, tmp_path):
    """The same callback may serve a test without the loaders of the fit."""
    loaders, ood, message = MISSING[case]
    module, run = classifier(library, perceptron()), trainer(library, tmp_path, BoCCallback(ood=ood, keys=("gap",)))
    with pytest.warns(UserWarning, match=f"without some ood loaders of .*{message.split(' in val')[0]}"):
        getattr(run, stage)(module, loaders(), verbose=False)
    prefix = "test/boc/" if stage == "test" else "val/boc/"
    assert run.callback_metrics[f"{prefix}gap"].item() == pytest.approx(expected(module, KNOWN)["gap"])
    if case != "index":
        assert set(run.callback_metrics) == {f"{prefix}{name}gap" for name in ("", "svhn/", "dtd/")}
        assert run.callback_metrics[f"{prefix}dtd/gap"].item() == pytest.approx(expected(module, FAR)["gap"])
    run = trainer(library, tmp_path, BoCCallback(ood=ood, on_error="raise"))
    with pytest.raises(ValueError, match="expected"):
        getattr(run, stage)(module, loaders(), verbose=False)


@pytest.mark.parametrize("which", LIBRARIES.values(), ids=LIBRARIES)
def test_missing_dataloader_idx_is_explained(which, tmp_path):
    module = classifier(which, perceptron())
    step = module.validation_step
    module.validation_step = lambda batch, batch_idx: step(batch, batch_idx)
    run = trainer(which, tmp_path, BoCCallback(ood=["svhn"]))
    with pytest.raises(RuntimeError, match="dataloader_idx") as error:
        run.fit(module, loader(KNOWN), named())
    assert "def validation_step(self, batch, batch_idx, dataloader_idx=0)" in shown(error)


@pytest.mark.parametrize("which", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("monitor", ["EarlyStopping", "ModelCheckpoint"])
def test_renamed_losses_are_explained(which, monitor, tmp_path):
    module, run = logging_losses(which, monitor, "val/loss", tmp_path)
    with pytest.raises(Exception, match="val/loss") as error:
        run.fit(module, loader(KNOWN), named())
    assert "renames what the step logs, 'val/loss' to 'val/loss/dataloader_idx_0'" in shown(error)


@pytest.mark.parametrize("monitor", ["EarlyStopping", "ModelCheckpoint"])
def test_other_errors_are_left_as_they_are(monitor, tmp_path):
    module, run = logging_losses(library, monitor, "val/accuracy", tmp_path)
    with pytest.raises(Exception, match="val/accuracy") as error:
        run.fit(module, loader(KNOWN), named())
    assert "From torch_boc:" not in shown(error)


def logging_losses(which, monitor, name, folder):
    module = classifier(which, perceptron())
    step = module.validation_step

    def logging_step(batch, batch_idx, dataloader_idx=0):
        found = step(batch, batch_idx)
        module.log("val/loss", found["loss"])
        return found

    module.validation_step = logging_step
    options = {"dirpath": folder} if monitor == "ModelCheckpoint" else {}
    watch = getattr(which.callbacks, monitor)(monitor=name, **options)
    return module, trainer(which, folder, BoCCallback(ood=["svhn"]), watch, enable_checkpointing=True)


def shown(error):
    return "".join(traceback.format_exception(error.value))
