"""The exact summary of rows in files, however many they are."""

import os
from typing import Any

from ..data.errors import ContentError, error_prefix, file_errors, printable
from ..data.files import open_content
from ..inference.row_summary import RowSummary, Totals
from .inputs import warn_if_incomplete

# The rows that are read at once: of columns, and of logits.
COLUMN_ROWS, LOGIT_ROWS = 2**16, 2**12


def summarize_rows(source: str | os.PathLike[str], *, by: str | None = None, **options: Any) -> Any:
    """The sums of `BoCMetric` over all rows of a folder that a predictor wrote, block by block, in bounded memory.

    It is `torch_boc.ray.summarize` without Ray, in one process. If the run has not finished, it warns.

    Args:
        source: a folder, a file, a pattern or a URI such as "s3://bucket/rows".
        by: the name of a column: there is a summary for each of its values.
        options: the other arguments of `torch_boc.ray.summarize`: `logits`, `target`, `num_classes`, `trials`, `bins`,
            `alpha` and `ignore_index`.

    Returns:
        A dict of scalar tensors in float64 with the keys of `torch_boc.functional.boc_summary`; with `by`, a dict of
        such dicts by the values of the column.

    >>> import tempfile
    >>> from torch_boc import BoCPredictor
    >>> loader = [(torch.randn(50, 5), torch.randint(3, (50,))) for _ in range(2)]
    >>> path = BoCPredictor(torch.nn.Linear(5, 3), progress=False).to_parquet(loader, f"{tempfile.mkdtemp()}/a.parquet")
    >>> summary = summarize_rows(path)
    >>> summary["samples"], summary["nll"] > 0
    (tensor(100., dtype=torch.float64), tensor(True))
    """
    path, summary, totals = os.fspath(source), RowSummary(by, **options), Totals()
    warn_if_incomplete(source)
    with file_errors(path):
        content = open_content(path)
        names = summary.used(content.kinds)
        if not names or (by is not None and by not in names):
            needed = "a column 'logits', or those of a predictor" if by is None else f"a column {by!r} to group by"
            raise ContentError(f"expected {needed}, got {', '.join(content.kinds)}")
    summary = summary._replace(num_classes=summary.num_classes or content.num_classes)
    for block in content.batches(names, LOGIT_ROWS if summary.logits in names else COLUMN_ROWS):
        with error_prefix(printable(path)):
            summary.add(totals, block)
    return summary.result(totals)
