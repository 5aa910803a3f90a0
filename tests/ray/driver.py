"""A program that predicts on a running cluster until it is killed.

python -m tests.ray.driver ADDRESS FILES PATH BATCHES
"""

import sys
from functools import partial

import ray

from tests.ray import models
from torch_boc.ray import predict

if __name__ == "__main__":
    address, files, path, batches = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    factory = partial(models.Watched, batches, 0.2)
    names = {"inputs": "x", "target": "label", "id": "path"}
    predict(ray.data.read_parquet(files), factory, path, **names, batch_size=10, resume=True)
