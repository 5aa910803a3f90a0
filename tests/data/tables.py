"""Tables of logits and of columns, in Parquet files."""

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from torch_boc.data.parquet import CLASSES_KEY
from torch_boc.functional import sample_columns


def logit_table(logits, target=None, *, lists=False):
    if lists:
        columns = {"logits": pa.array(logits.tolist(), pa.list_(pa.float32()))}
    else:
        columns = {f"logit_{i}": logits[:, i].numpy() for i in range(logits.shape[1])}
    return pa.table(columns | ({} if target is None else {"target": target.numpy()}))


def column_table(logits, target=None, columns=None):
    found = {name: x.numpy() for name, x in sample_columns(logits, columns=columns).items()}
    index = {"index": torch.arange(len(logits)).numpy(), "path": [f"{i}.png" for i in range(len(logits))]}
    table = pa.table(index | found | ({} if target is None else {"target": target.numpy()}))
    return table.replace_schema_metadata({CLASSES_KEY: str(logits.shape[1])})


def write_parts(folder, table, parts=3, *, group=97):
    """The table in several files of uneven lengths, with small row groups."""
    folder.mkdir(parents=True)
    edges = [table.num_rows * i * i // parts**2 for i in range(parts + 1)]
    for i in range(parts):
        part = table.slice(edges[i], edges[i + 1] - edges[i])
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=group)
    return folder
