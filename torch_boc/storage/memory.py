"""How libraries say that there is too little memory."""

MESSAGES = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "alloc_failed")


def mentions_memory(error: BaseException) -> bool:
    """Whether the message of `error` is about memory: of a GPU, of the CPU, or of a library on the GPU."""
    return any(text in str(error).lower() for text in MESSAGES)
