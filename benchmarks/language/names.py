"""What the page calls the scores: as reports on text do, and the log-probability of the token."""

from torch_boc.language import text_words

NAMES = {"log_probability": "log-probability of the token", **text_words.NAMES}
# With the sign for which higher is more sure.
SIGNED = {name: f"−{text}" if name in text_words.NEGATIVE else text for name, text in NAMES.items()}
