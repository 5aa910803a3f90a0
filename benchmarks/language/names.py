"""What the page calls the scores."""

NAMES = {
    "log_probability": "log-probability of the token",
    "confidence": "confidence",
    "lost_coins": "lost coins",
    "entropy": "entropy",
    "logit_gap": "logit gap",
    "energy": "energy",
    "concentration": "ρ",
}
# With the sign for which higher is more sure.
NEGATIVE = ("lost_coins", "entropy", "concentration")
SIGNED = {name: f"−{text}" if name in NEGATIVE else text for name, text in NAMES.items()}
