"""Pictures of detectors: they are shown, small, and drawn of what is said."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import incident_pictures as pictures  # noqa: E402

FINDING = {"detector": "loss_jump", "global_step": 40, "tensor": "loss", "threshold": 9.0, "text": "the loss is 20, and <10> before"}


def lines(last):
    return pictures.Lines("loss", {"loss": [(step, 1.0 + step % 3) for step in range(99)] + [(99, last)]})


class IncidentPicturesTest(unittest.TestCase):
    def test_each_line_is_a_detector_of_the_page_and_each_picture_has_a_line(self):
        named = set(pictures.PICTURES) | pictures.WITHOUT
        self.assertEqual(set(pictures.PICTURES) - set(pictures.sections()), set())
        self.assertEqual(set(pictures.PICTURES) & pictures.WITHOUT, set())
        # A picture without a line in the table could not be drawn again.
        self.assertEqual({path.stem for path in pictures.FOLDER.glob("*.svg")} - named, set())

    def test_the_pictures_are_shown_and_small(self):
        self.assertEqual(pictures.check(), 0)

    def test_a_picture_marks_the_step_and_the_threshold_and_reads_in_the_dark(self):
        text = pictures.draw("loss_jump", lines(20.0), lines(2.0), FINDING, 9.0)
        self.assertEqual(text.count('class="mark"'), 1)
        self.assertEqual(text.count('class="bar"'), 2)
        self.assertIn("found at step 40", text)
        self.assertIn("&lt;10&gt;", text)
        self.assertIn("prefers-color-scheme:dark", text)

    def test_what_is_expected_is_the_twins_range(self):
        low, high = pictures.range_of(lines(2.0).lines)
        self.assertEqual((low, high), (1.0, 3.0))

    def test_thinning_keeps_what_stands_out(self):
        points = [(step, 1.0) for step in range(5000)]
        points[1234] = 1234, 100.0
        kept = pictures.thinned(points)
        self.assertLessEqual(len(kept), 2 * pictures.MOST_POINTS)
        self.assertIn((1234, 100.0), kept)

    def test_what_is_not_finite_is_drawn_at_the_top(self):
        scale = pictures.Scale([1.0, 2.0, float("nan"), float("inf")], log=False)
        self.assertEqual(scale.at(float("nan")), pictures.TOP)
        text = pictures.draw("loss_jump", lines(float("nan")), lines(2.0), FINDING, None)
        self.assertIsNone(re.search(r"nan|inf", re.sub(r"<style>.*?</style>|<title>.*?</title>", "", text, flags=re.S)))


if __name__ == "__main__":
    unittest.main()
