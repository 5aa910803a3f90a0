"""Files of arrays, closed again once they are read."""

import numpy as np


def read_arrays(path):
    """All arrays of an `.npz` file by name."""
    with np.load(path) as file:
        return dict(file)
