"""Tables of samples in Parquet files that appear whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor


def require_pyarrow() -> Any:
    """The pyarrow module, or an error that says how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'torch-boc[eval]'") from error
    return pyarrow


class ParquetFile:
    """Writes batches of columns to `path`, under a temporary name until it is closed without an error.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "samples.parquet"
    >>> with ParquetFile(path) as file:
    ...     file.write({"gap": torch.tensor([0.1, 0.2])})
    >>> path.exists(), file.rows
    (True, 2)
    """

    def __init__(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        self.path = Path(path)
        self.rows = 0
        self._metadata = dict(metadata or {})
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self._writer: Any = None

    def write(self, columns: Mapping[str, Tensor]) -> None:
        """Append one batch; the first sets the columns and their types."""
        arrow = require_pyarrow()
        table = arrow.table({name: column.detach().cpu().numpy() for name, column in columns.items()})
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            schema = table.schema.with_metadata(self._metadata)
            self._writer = arrow.parquet.ParquetWriter(self._temporary, schema, compression="zstd")
        self._writer.write_table(table.replace_schema_metadata(self._metadata))
        self.rows += table.num_rows

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._temporary.replace(self.path)

    def discard(self) -> None:
        """Give up: leave nothing behind, and what stood under the name as it was."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
