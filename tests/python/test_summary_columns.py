"""What the extension says of a summary's columns is what its summaries have."""

from tdbg import _trial


def test_every_statistic_is_a_field_of_a_summary_and_the_rest_say_whose_row_it_is() -> None:
    columns = _trial.summary_columns()
    names = [name for name, _, _ in columns]
    assert len(set(names)) == len(names)
    assert {dtype for _, dtype, _ in columns} <= {"uint16", "uint32", "uint64", "int64", "float64"}
    statistics = [(name, dtype, says) for name, dtype, says in columns if says]
    assert ("variance", "float64", "second central moment, divides by n") in statistics
    assert ("count", "uint64", "elements") in statistics
    assert all(isinstance(getattr(_trial.Summary, name), property) for name, _, _ in statistics)
    assert ("tensor", "uint32", "") in columns and not hasattr(_trial.Summary, "tensor")
