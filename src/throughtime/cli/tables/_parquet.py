"""Parquet, through pyarrow: the same rows, with types of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from throughtime.cli._user_errors import refuse
from throughtime.cli.tables._arrow import UNREADABLE, plain
from throughtime.cli.tables._bounds import check_cells, check_column_count
from throughtime.cli.tables._table import File, RowChunk, Values, check_columns, piece_cells


class ParquetTable(File):
    """A Parquet file of flat columns: numbers, text, booleans, dates."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        file = self._file()
        check_column_count(path, file.metadata.num_columns)
        self.columns = [str(name) for name in file.schema_arrow.names]
        check_columns(path, self.columns)
        check_cells(path, file.metadata.num_rows, len(self.columns))

    def pieces(self) -> Iterator[RowChunk]:
        """The rows, counted from 1."""
        first = 1
        for batch in self._batches():
            columns = {name: self._readable(name, batch.column(place)) for place, name in enumerate(self.columns)}
            yield RowChunk(columns, np.arange(first, first + batch.num_rows))
            first += batch.num_rows

    def _batches(self) -> Iterator[Any]:
        from pyarrow import ArrowException  # noqa: PLC0415

        try:
            # Texts as places in a list of different ones: a text that comes a million times is in memory once.
            texts = self._texts(self._file().schema_arrow)
            yield from self._file(texts).iter_batches(batch_size=max(1, piece_cells.value // len(self.columns)))
        except (ArrowException, OSError, ValueError) as error:
            self._refuse(error)

    def _texts(self, schema: Any) -> list[str]:
        """The columns of text."""
        import pyarrow as pa  # noqa: PLC0415

        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        return [column.name for column in schema if any(is_kind(column.type) for is_kind in kinds)]

    def _file(self, as_dictionaries: Sequence[str] = ()) -> Any:
        try:
            from pyarrow import ArrowException, parquet  # noqa: PLC0415
        except ImportError:
            refuse(
                f"{self.path} needs pyarrow",
                got="no pyarrow here",
                expected="it installed: it is large, so only Parquet asks for it",
                fix="Run `pip install throughtime[parquet]`, or save the file as CSV.",
            )
        try:
            file = parquet.ParquetFile(self.path, read_dictionary=[*as_dictionaries])
            # What is no schema of pyarrow's raises here, and not where it is used.
            file.schema_arrow.names  # noqa: B018
            return file
        except (ArrowException, OSError, ValueError) as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> NoReturn:
        if isinstance(error, OSError) and error.errno is not None:
            # It is there, but the system does not let us read it.
            raise error
        refuse(
            f"{self.path} is not a Parquet file",
            got=str(error).partition(".")[0].partition("\n")[0][:80],
            expected="a whole Parquet file",
            fix="Save it again.",
        )

    def _readable(self, name: str, column: Any) -> Values:
        """The values of a column; those that Python has no words for are a mistake."""
        try:
            return self._values(name, plain(column))
        except UNREADABLE as error:
            # Texts are read as dictionaries, of which the file knows nothing.
            kind = getattr(column.type, "value_type", column.type)
            refuse(
                f"{self.path}, column `{name}` cannot be read",
                got=f"{kind}: {' '.join(str(error).split())[:80]}",
                expected="numbers, text in UTF-8, or dates of the years 1 to 9999 in a known time zone",
                fix="Correct the column, or save it as numbers or as text.",
            )

    def _values(self, name: str, column: Any) -> Values:
        """Numbers stay numbers, a missing one NaN; all else becomes text, a missing one empty."""
        import pyarrow as pa  # noqa: PLC0415

        kind = column.type
        if pa.types.is_nested(kind):
            refuse(
                f"{self.path}, column `{name}` is nested",
                got=str(kind),
                expected="numbers or text, one value a row",
                fix="Write one row a step, with a column that names the sequence.",
            )
        if pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        if pa.types.is_integer(kind) or pa.types.is_floating(column.type):
            values: Values = column.to_numpy(zero_copy_only=False)
            return values
        if pa.types.is_dictionary(kind):
            different = _as_texts(column.dictionary)
            # A missing one is the last of the texts.
            places = column.indices.fill_null(len(different)).to_numpy(zero_copy_only=False)
            if places.size and places.min() < 0:
                raise ValueError("an index below 0 into a dictionary")
            texts: Values = np.append(different, [""])[places]
            return texts
        return _as_texts(column)


def _as_texts(column: Any) -> Values:
    values = ["" if value is None else str(value) for value in column.to_pylist()]
    texts = np.empty(len(values), object)
    texts[:] = values
    return texts
