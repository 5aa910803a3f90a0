"""Run a classifier over a Spark data frame with `predict_batch_udf`, with the numbers of the probe as columns.

    python examples/spark_batch_inference.py        # a random network on noise, on this machine, offline

It needs PySpark (pip install pyspark) and Java. `BoCBatchPredictor` is the same class that `torch_boc.ray` sends to its
workers: arrays in, arrays out.
"""

import argparse
import os
import sys

import numpy
import torch
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from torch_boc.inference import BoCBatchPredictor

WIDTH, CLASSES = 32, 10
COLUMNS = {"prediction": LongType(), "confidence": DoubleType(), "dominance": DoubleType(), "gap": DoubleType()}


def make_predict():
    """What each Python process of Spark calls once. It makes the classifier, so load your weights here."""

    def make_model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))

    predictor = BoCBatchPredictor(make_model, columns=list(COLUMNS))
    # Spark gives float64; the model wants float32.
    return lambda x: predictor({"x": x.astype("float32")})


def main() -> None:
    """Predict, and write or show the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="a folder for Parquet files; by default rows are shown")
    parser.add_argument("--rows", type=int, default=200)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the Python of the workers
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    x = numpy.random.default_rng(0).normal(size=(args.rows, WIDTH))
    frame = spark.createDataFrame([(f"{i:04}.png", row.tolist()) for i, row in enumerate(x)], ["path", "x"])

    fields = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
    predict = predict_batch_udf(make_predict, return_type=fields, batch_size=64, input_tensor_shapes=[[WIDTH]])
    rows = frame.withColumn("probe", predict("x")).select("path", "probe.*")
    if args.output:
        rows.write.parquet(args.output)
    else:
        rows.orderBy("gap", ascending=False).show(5)
    spark.stop()


if __name__ == "__main__":
    main()
