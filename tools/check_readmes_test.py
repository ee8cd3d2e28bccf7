"""Each kind of fault is found, and what merely looks like one is not."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_readmes  # noqa: E402

TABLE = "# room\n\n| file | what |\n|---|---|\n| `a`, `b.h` | both |\n"


class CheckReadmesTest(unittest.TestCase):
    def room(self, text, *files):
        return check_readmes.complaints_about_room("src/none/README.md", text, files)

    def test_a_complete_table_is_fine(self):
        self.assertEqual(self.room(TABLE, "a.cc", "a.h", "b.h", "a_test.cc", "testing.h", "README.md"), [])

    def test_files_that_are_not_mentioned_are_found(self):
        self.assertEqual(self.room(TABLE, "a.cc", "b.h", "c.cc"), ["src/none/README.md: c.cc is not mentioned"])

    def test_a_mention_outside_of_the_table_is_one(self):
        self.assertEqual(self.room(TABLE + "\n`c.cc` too\n", "a.cc", "b.h", "c.cc"), [])

    def test_names_in_a_table_that_are_not_there_are_found(self):
        self.assertEqual(self.room(TABLE, "a.cc"), ["src/none/README.md: b.h is not there"])

    def test_links_lead_somewhere(self):
        there = {"docs/b.md": "# b\n\n## Two words, `code`\n"}
        text = "# a\n[](b.md) [](b.md#two-words-code) [](#a) [](https://x/y) [](c.md) [](b.md#three) [](#b)\n```\n[](d)\n```\n"
        self.assertEqual(check_readmes.dead_links("docs/a.md", text, there.get),
                         ["docs/a.md: c.md is not there", "docs/a.md: no heading of b.md makes #three",
                          "docs/a.md: no heading of its own makes #b"])


if __name__ == "__main__":
    unittest.main()
