"""Files that appear whole or not at all, and tables in Parquet."""
