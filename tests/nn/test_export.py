"""A deployed classifier answers as the eager one does: compiled, exported, and in ONNX.

Compiling the test costs half a minute with the default trials, so few trials are taken where that is not the point.
"""

import io

import pytest
import torch
from torch.export import Dim

from tests.nn.models import images, linear, roberta, tokens, vit
from torch_boc import BoCClassifier, ConformalTest
from torch_boc.nn import BoCOutput, ProbeOutput

NAMES = ("logits", *ProbeOutput._fields)
BATCH = Dim.DYNAMIC
pytestmark = pytest.mark.filterwarnings("ignore:nothing can be flagged")


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def flat(result):
    return (result.logits, *(result.probe.values() if isinstance(result.probe, dict) else result.probe))


def assert_same(values, result, *, rtol=2e-5, atol=1e-6):
    for name, value, expected in zip(NAMES, values, flat(result), strict=False):
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


VERDICT = ("p_in_distribution", "review")


def screened(model=None, **options):
    """A classifier with a test that knows 200 held-out samples; with groups, only the columns of the test."""
    held_out = 4 * torch.randn(200, 5, generator=torch.Generator().manual_seed(3))
    test = ConformalTest(**options).calibrate(held_out)
    columns = VERDICT if options else None  # to export the p-values of the probe takes time
    return BoCClassifier(
        linear() if model is None else model, 1, columns=columns, conformal_test=test, alpha=0.2
    ).eval()


def assert_same_verdict(p, review, result):
    """Every p-value but those of scores near the end of a place, which may round to the other side."""
    assert ((p - result.p_in_distribution).abs() < 1e-12).double().mean() > 0.97
    assert (review == result.review).double().mean() > 0.97
    assert 0 < int(review.sum()) < len(review)


GROUPS = pytest.mark.parametrize("groups", [None, "confidence"])


@GROUPS
def test_a_test_is_compiled_with_the_classifier(groups):
    classifier = screened(groups=groups) if groups else screened()
    torch.compiler.reset()
    compiled = torch.compile(classifier, fullgraph=True, dynamic=True, backend="eager" if groups else "inductor")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for size in (150, 90):
            x = torch.randn(size, 3)
            result = compiled(x)
            if not groups:
                assert_same(flat(result)[:-2], classifier(x))
            assert_same_verdict(result.p_in_distribution, result.review, classifier(x))
    torch.compiler.reset()


@GROUPS
def test_a_test_is_exported_saved_and_loaded(groups):
    classifier, x = screened(groups=groups) if groups else screened(), torch.randn(80, 3)
    file = io.BytesIO()
    torch.export.save(torch.export.export(classifier, (x,), dynamic_shapes={"args": ({0: BATCH},)}), file)
    file.seek(0)
    program = torch.export.load(file)
    assert torch.equal(program.state_dict["conformal_test.counts"], classifier.conformal_test.counts)
    for size in (80, 200):
        x = torch.randn(size, 3)
        result = program.module()(x)
        assert_same_verdict(result.p_in_distribution, result.review, classifier(x))


@pytest.mark.parametrize("options", [{}, {"groups": "prediction"}, {"groups": "confidence"}])
def test_onnxruntime_tests_as_eager_does(options, tmp_path):
    classifier = screened(torch.nn.Identity(), **options)
    inputs, names = ((torch.randn(6, 5),), {}), ("logits", *(() if options else ProbeOutput._fields), *VERDICT)
    run = in_onnx(classifier, inputs, {"args": ({0: BATCH},)}, tmp_path / "screened.onnx", names)
    logits = 3 * torch.randn(300, 5, generator=torch.Generator().manual_seed(1))
    *_, p, review = run(logits)[: len(names)]
    assert_same_verdict(p, review, classifier(logits))
    logits[0, 0] = torch.nan
    *_, p, review = run(logits[:2])[: len(names)]
    assert p.isnan().tolist() == [True, False]
    assert review[0]


def test_exported_with_any_batch_size():
    classifier = BoCClassifier(vit(), trials=2).eval()
    shapes = {"kwargs": {"pixel_values": {0: BATCH}}}
    program = torch.export.export(classifier, (), {"pixel_values": images(3)}, dynamic_shapes=shapes)
    for size in (3, 6, 1):
        result, expected = (run(pixel_values=images(size)) for run in (program.module(), classifier))
        assert isinstance(result, BoCOutput)
        assert isinstance(result.probe, ProbeOutput)
        assert type(result.output) is type(expected.output)
        assert_same(flat(result), expected)


def in_onnx(classifier, inputs, shapes, path, names=NAMES):
    """The classifier as a function that onnxruntime runs."""
    import onnxruntime

    args, kwargs = inputs
    torch.onnx.export(
        classifier, args, path, kwargs=kwargs, dynamo=True, verbose=False, dynamic_shapes=shapes, output_names=names
    )
    session = onnxruntime.InferenceSession(path)
    assert [x.name for x in session.get_outputs()][: len(names)] == list(names)
    assert all(isinstance(x.shape[0], str) for x in session.get_inputs()), "the batch axis is dynamic"

    def run(*args, **kwargs):
        values = (*args, *kwargs.values())
        feed = {x.name: v.numpy() for x, v in zip(session.get_inputs(), values, strict=True)}
        return [torch.from_numpy(x) for x in session.run(None, feed)]

    return run


def test_onnxruntime_agrees_with_eager(tmp_path):
    classifier = BoCClassifier(roberta(), trials=2).eval()
    shapes = {"kwargs": {"input_ids": {0: BATCH}, "attention_mask": {0: BATCH}}}
    run = in_onnx(classifier, ((), tokens(3)), shapes, tmp_path / "classifier.onnx")
    for size in (3, 6, 1):
        assert_same(run(**tokens(size)), classifier(**tokens(size)), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    """The probe of the logits that are put in, as a module and in onnxruntime."""
    classifier = BoCClassifier(torch.nn.Identity()).eval()
    path = tmp_path_factory.mktemp("onnx") / "probe.onnx"
    with torch.no_grad():
        return classifier, in_onnx(classifier, ((torch.randn(3, 6),), {}), {"args": ({0: BATCH},)}, path)


def test_onnxruntime_on_rows_of_every_confidence(identity):
    classifier, run = identity
    spread = torch.linspace(0, 60, 50).unsqueeze(1) * torch.tensor([[0.0, -1.0, -1.5, -1.1, -2.0, -1.7]])
    values = dict(zip(NAMES, run(spread), strict=False))
    expected = dict(zip(NAMES, flat(classifier(spread)), strict=True))
    assert values["prediction"].tolist() == expected["prediction"].tolist()
    for name in ("confidence", "dominance", "gap", "p_value"):
        torch.testing.assert_close(values[name], expected[name], rtol=1e-5, atol=1e-30, msg=name)
    torch.testing.assert_close(values["concentration"], expected["concentration"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(values["log_p_value"], expected["log_p_value"], rtol=1e-5, atol=1e-15)


def test_onnxruntime_never_gives_numbers_for_a_row_with_nan(identity):
    """Its maximum of a row leaves out a NaN in some places of some rows, wherever the tops are."""
    _, run = identity
    logits = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    logits[torch.arange(300), torch.arange(300) % 6] = torch.nan
    for name, value in zip(NAMES[2:], run(logits)[2:], strict=False):
        assert value.isnan().all(), name
