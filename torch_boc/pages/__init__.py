"""What all pages have in common: templates that escape everything, the frame of a page, its tables and its style."""

from .environment import STYLE, TEMPLATES, environment, html_text, json_text
from .parts import Cell, Table

__all__ = ["STYLE", "TEMPLATES", "Cell", "Table", "environment", "html_text", "json_text"]
