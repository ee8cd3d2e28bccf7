"""The mark of a batch: equal for equal values, whatever their memory looks like."""

import torch

from tdbg.adaptors.torch.context import fingerprint


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
