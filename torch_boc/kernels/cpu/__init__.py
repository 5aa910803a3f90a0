"""The kernels for the CPU, in C++, and how they are called."""
