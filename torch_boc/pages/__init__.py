"""What all pages have in common: templates that escape everything, the frame of a page, its tables and its style."""

from .environment import STYLE, TEMPLATES, environment, html_text, json_text

__all__ = ["STYLE", "TEMPLATES", "environment", "html_text", "json_text"]
