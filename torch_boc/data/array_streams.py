"""Files of arrays that are read some rows at a time: NumPy and safetensors."""

import json
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from .._optional import require
from .arrays import ArrayHeader, array_header, as_tensor, numpy
from .formats import expect_start, has_plain_name, holds_objects, read_npy, read_safetensors
from .row_arrays import PIECE, Foreign, RowArray, WholeArray, numpy_array, tensor_array
from .selection import parts_of

MAGIC = b"\x93NUMPY"
TENSORS = {
    "BOOL": torch.bool,
    **{f"I{8 * size}": getattr(torch, f"int{8 * size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": getattr(torch, f"uint{8 * size}") for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": getattr(torch, f"float{8 * size}") for size in (2, 4, 8)},
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class Source:
    """The content of a file, some rows at a time, inside of `with`.

    Attributes:
        files: what is closed at the end.
    """

    def __init__(self) -> None:
        self.files = ExitStack()

    def open(self) -> None:
        """Open the file and read its header."""

    def headers(self) -> Any:
        """What `choose` decides on: the arrays, which need not have values.

        For CSV, it is certain only after all blocks.
        """
        raise NotImplementedError

    def num_rows(self, key: Any) -> int | None:
        """The length of an array, or None if it is known only at the end."""
        raise NotImplementedError

    def blocks(self, keys: Sequence[Any], total: int | None, rows: int) -> Iterator[Mapping[Any, Any]]:
        """The arrays with these keys, which are `total` long, `rows` rows at a time."""
        raise NotImplementedError

    def whole(self, key: Any) -> Any:
        """An array of another length than the logits."""
        raise NotImplementedError

    def finish(self) -> None:
        """Look for damage in what was not read."""

    def __enter__(self) -> "Source":
        try:
            self.open()
        except BaseException:
            self.files.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.files.close()


class ArraySource(Source):
    """Arrays by name, or in places of a pair, or alone."""

    arrays: Mapping[Any, Any]

    def headers(self) -> Any:
        """The headers of all arrays."""
        return {name: array.header for name, array in self.arrays.items()}

    def num_rows(self, key: Any) -> int | None:
        """See `Source`. What is no array and no list has the length 0."""
        header = self.arrays[key].header
        if isinstance(header, list | tuple) and not isinstance(header, Foreign):  # a header is a tuple as well
            return len(header)
        shape: Sequence[int] = getattr(header, "shape", ())
        return int(shape[0]) if len(shape) else 0

    def blocks(self, keys: Sequence[Any], total: int | None, rows: int) -> Iterator[Mapping[Any, Any]]:
        """See `Source`."""
        for start in range(0, total or 0, rows):
            stop = min(start + rows, total or 0)
            yield {key: self.arrays[key].read(start, stop) for key in keys}

    def whole(self, key: Any) -> Any:
        """See `Source`."""
        return self.arrays[key].all()


class WholeSource(ArraySource):
    """The content of a file that was read as a whole."""

    def __init__(self, content: Any) -> None:
        super().__init__()
        self._content = content
        self.arrays = {key: WholeArray(values) for key, values in parts_of(content).items()}

    def headers(self) -> Any:
        """The content itself."""
        return self._content


class NpySource(ArraySource):
    """The one array of an `.npy` file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def open(self) -> None:
        """See `Source`."""
        path = self._path
        expect_start(path, MAGIC, "an array as made by numpy.save")
        with path.open("rb") as start:
            header = array_header(start, path.stat().st_size)
        if header is None or header.kind.hasobject:
            self.arrays = {0: WholeArray(read_npy(path))}
        else:
            file = self.files.enter_context(path.open("rb", buffering=0))
            self.arrays = {0: numpy_array(file, header, offset=header.offset)}

    def headers(self) -> Any:
        """The header of the one array."""
        return self.arrays[0].header


class NpzSource(ArraySource):
    """The arrays of an `.npz` file. Each is read as a stream, which compares the checksum at its end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._streams: list[Any] = []

    def open(self) -> None:
        """See `Source`."""
        expect_start(self._path, b"PK", "a zip archive as made by numpy.savez")
        numpy()  # says how to get it if it is missing
        file = self.files.enter_context(self._path.open("rb"))
        self._zip = self.files.enter_context(zipfile.ZipFile(file))
        self.arrays = {x.filename.removesuffix(".npy"): self._member(x) for x in self._zip.infolist()}

    def _member(self, part: zipfile.ZipInfo) -> Any:
        """An array of the archive, or empty bytes for a file that is no array."""
        name = part.filename.removesuffix(".npy")
        if name == part.filename:
            with self._zip.open(part) as start:
                is_array = start.read(len(MAGIC)) == MAGIC
        stream: Any = self.files.enter_context(self._zip.open(part))
        self._streams.append(stream)
        if name == part.filename and not is_array:
            return WholeArray(b"")
        header = array_header(stream, part.file_size)
        if header is None:
            stream.seek(0)
            return WholeArray(as_tensor(numpy().lib.format.read_array(stream, allow_pickle=False)))
        if header.kind.hasobject:
            raise holds_objects(f"array {name!r}")
        return self._by_column(part, header, stream) if header.by_column else numpy_array(stream, header)

    def _by_column(self, part: zipfile.ZipInfo, header: ArrayHeader, stream: Any) -> Any:
        """An array in the order of Fortran, whose rows are all over it: it needs a place in the file, or memory."""
        if part.compress_type != zipfile.ZIP_STORED or part.flag_bits & 1:
            stream.seek(0)
            return WholeArray(as_tensor(numpy().lib.format.read_array(stream, allow_pickle=False)))
        file = self.files.enter_context(self._path.open("rb", buffering=0))
        file.seek(part.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
        return numpy_array(file, header, offset=part.header_offset + 30 + name + extra + header.offset)

    def finish(self) -> None:
        """Read what is left of every stream, so that all checksums are compared."""
        for stream in self._streams:
            while stream.read(PIECE):
                pass


class SafetensorsSource(ArraySource):
    """The tensors of a `.safetensors` file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def open(self) -> None:
        """See `Source`."""
        path = self._path
        library = require("safetensors", "torch", purpose="reading it needs")
        if not has_plain_name(path):
            self.arrays = {name: WholeArray(x) for name, x in read_safetensors(path).items()}
            return
        with library.safe_open(path, framework="pt") as opened:  # refuses what is damaged, and reads the header only
            names = list(opened.keys())
        file = self.files.enter_context(path.open("rb", buffering=0))
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        if any(header[name]["dtype"] not in TENSORS for name in names):
            self.arrays = {name: WholeArray(x) for name, x in read_safetensors(path).items()}
            return
        self.arrays = {name: self._tensor(file, header[name], 8 + length) for name in names}

    def _tensor(self, file: Any, entry: Mapping[str, Any], start: int) -> RowArray:
        dtype, shape = TENSORS[entry["dtype"]], tuple(entry["shape"])
        return tensor_array(file, shape, dtype, offset=start + entry["data_offsets"][0])
