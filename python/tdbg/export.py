"""The part of `tdbg export` that needs a Python library: rows (CSV, made by the program) to a Parquet file.

    python -m tdbg.export ROWS.csv OUT.parquet

Started by `tdbg export --to parquet` as a file, so that whatever Python has pyarrow will do, tdbg installed or not.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path and sys.path[0].endswith("tdbg"):
    sys.path.pop(0)  # our own directory: its modules are not the ones that pyarrow means

NO_PYARROW = 3
# In the file's metadata; `tdbg export --force` replaces no other Parquet file.
MARK = {"tdbg.export": "parquet"}
_TYPES = {"global_step": "int64", "mode_step": "int64", "mode": "string", "worker": "string", "tensor": "string",
          "index": "int64"}


def to_parquet(rows: str, out: str) -> None:
    """Writes `out`, a column at a time and a few megabytes of rows at a time. Texts are dictionary-encoded."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    with open(rows, encoding="utf-8") as file:
        names = file.readline().rstrip("\n").split(",")
    types = {name: getattr(pyarrow, _TYPES.get(name, "float64"))() for name in names}
    # Nothing is missing in it: "nan" is a number, and a tensor may be called "NULL".
    convert = pyarrow.csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    read = pyarrow.csv.ReadOptions(block_size=16 << 20)
    schema = pyarrow.schema(list(types.items()), metadata=MARK)
    texts = [name for name in names if types[name] == pyarrow.string()]
    with pyarrow.parquet.ParquetWriter(out, schema, use_dictionary=texts) as writer:
        for batch in pyarrow.csv.open_csv(rows, read_options=read, parse_options=parse, convert_options=convert):
            writer.write_batch(batch)


def main(arguments: list[str]) -> int:
    """The exit code: 0, or 3 where this Python has no pyarrow."""
    if len(arguments) != 2:
        sys.exit("usage: python -m tdbg.export ROWS.csv OUT.parquet")
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        print(f"{sys.executable} has no pyarrow", file=sys.stderr)
        return NO_PYARROW
    to_parquet(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
