"""Files of sequences: CSV, Parquet, NPZ and text, read in pieces, looked over, and turned into sequences."""

from throughtime.cli.tables._layout import Column, Layout
from throughtime.cli.tables._open import open_table
from throughtime.cli.tables._rows import Rows, rows_of
from throughtime.cli.tables._survey import Facts, Survey, survey
from throughtime.cli.tables._table import Piece, Table

__all__ = ["Column", "Facts", "Layout", "Piece", "Rows", "Survey", "Table", "open_table", "rows_of", "survey"]
