"""What tests of the kernels need around them."""

from tests.kernels.cases import INTERPRETED

# Triton's interpreter adapts its language at each call of a function in a kernel, which takes most of its time. Once
# for each function is enough: the kernel that calls it still does so at each launch, and undoes it.
if INTERPRETED:
    from triton.runtime.interpreter import InterpretedFunction

    with_preparation, prepared = InterpretedFunction.__call__, set()

    def call(self, *args, **kwargs):
        """As before, without the preparation if there was one."""
        if self in prepared:
            return self.rewrite()(*args, **kwargs)
        prepared.add(self)
        return with_preparation(self, *args, **kwargs)

    InterpretedFunction.__call__ = call
