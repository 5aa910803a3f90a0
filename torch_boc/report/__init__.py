"""What a report says and shows: tables, figures, sentences and pages, one topic in one file."""
