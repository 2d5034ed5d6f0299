"""Files of sequences: CSV, Parquet, NPZ and text, read in pieces, looked over, and turned into sequences."""

from throughtime.cli.tables._column_stats import Facts, Survey, survey
from throughtime.cli.tables._group_rows import Rows, rows_of
from throughtime.cli.tables._readers import open_table
from throughtime.cli.tables._schema import Column, Layout
from throughtime.cli.tables._table import RowChunk, Table

__all__ = ["Column", "Facts", "Layout", "RowChunk", "Rows", "Survey", "Table", "open_table", "rows_of", "survey"]
