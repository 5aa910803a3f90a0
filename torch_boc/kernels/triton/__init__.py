"""The kernels for GPUs, in Triton, and how they are launched."""
