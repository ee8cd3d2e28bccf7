"""The mark of a batch: equal for equal values, whatever their memory looks like."""

import torch

from tdbg.adaptors.torch.context import fingerprint
from tdbg.adaptors.torch.params import READER


def test_equal_batches_have_equal_marks_and_others_do_not():
    batch = torch.arange(60_000, dtype=torch.float32).reshape(100, 600)
    assert fingerprint(batch) == fingerprint(batch.clone())
    assert fingerprint(batch) != fingerprint(batch + 1)
    assert 0 <= fingerprint(batch) < 2**32


def test_a_view_has_the_mark_of_its_values():
    batch = torch.arange(12, dtype=torch.int64).reshape(3, 4)
    assert fingerprint(batch.t()) == fingerprint(batch.t().contiguous())
    assert fingerprint(batch[1:]) == fingerprint(batch[1:].clone())


def test_one_changed_byte_of_a_small_batch_changes_the_mark():
    batch = torch.zeros(1000, dtype=torch.uint8)
    marks = {fingerprint(batch)}
    for i in range(0, 1000, 37):
        changed = batch.clone()
        changed[i] = 1
        marks.add(fingerprint(changed))
    assert len(marks) == 1 + len(range(0, 1000, 37))


def test_what_is_read_without_torch_is_what_torch_reads():
    batch = torch.arange(60_000, dtype=torch.float32).reshape(100, 600)
    for seen in (batch, batch[3:], batch[0], batch.bfloat16(), torch.tensor(2.5), torch.ones(5, dtype=torch.bool)):
        rows = seen.shape[0] if seen.dim() else 1
        assert READER.batch(seen) == (rows, fingerprint(seen))
    for other in (batch.t(), batch[:, 1:], torch.ones(0, 4), batch.to_sparse(), batch.to("meta"), [1.0]):
        assert READER.batch(other) is None
