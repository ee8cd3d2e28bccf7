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

    def citations(self, name, text):
        there = {"docs/b.md": "# b\n\n## Two words\n\n**A lead.** More.\n", "src/x/README.md": "", "SECURITY.md": ""}
        return check_readmes.missing_citations(name, text, there.get)

    def test_documents_that_comments_cite_are_there(self):
        self.assertEqual(self.citations("src/x/a.cc", "// See docs/b.md, README.md and b.md.\n/// SECURITY.md; <rule>/NONE.md *.md\n"), [])
        self.assertEqual(self.citations("src/x/a.cc", "// By none.md, 7, and docs/c.md.\n"),
                         ["src/x/a.cc: cites none.md, which is not there", "src/x/a.cc: cites docs/c.md, which is not there"])
        self.assertEqual(self.citations("python/x/a.py", '"""As docs/c.md says."""\n'),
                         ["python/x/a.py: cites docs/c.md, which is not there"])

    def test_titles_that_comments_cite_are_headings_or_leads_even_where_the_line_ends(self):
        self.assertEqual(self.citations("a.h", '/// (docs/b.md, "Two\n/// words"; docs/b.md,\n  // "A lead")\n'), [])
        self.assertEqual(self.citations("a.h", '/// (docs/b.md, "Two\n/// more")'), ['a.h: docs/b.md has no "Two more"'])
        self.assertEqual(self.citations("docs/c.md", '[b.md](b.md), "One word"'), ['docs/c.md: b.md has no "One word"'])

    def test_names_in_strings_of_tests_are_no_citations(self):
        self.assertEqual(self.citations("tests/x/test_a.py", 'page = "x.md"\nread(\'y.md\')\n'), [])
        self.assertEqual(self.citations("tests/x/test_a.py", '"""docs/c.md"""\n'), ["tests/x/test_a.py: cites docs/c.md, which is not there"])

    def test_every_suite_is_in_the_readme_of_the_tests(self):
        self.assertEqual(check_readmes.suites_not_named("| `kill` | ...\n| `cli`, `x/` |", {"kill", "cli", "golden"}),
                         ["tests/README.md: golden is not mentioned"])

    def test_tests_that_hold_a_promise_are_there(self):
        there = {"tests/a_test.cc": "TEST(A, Holds)", "src/a.h": ""}
        text = ("A promise of `tests/none.py`.\n\n*Held by* `tests/a_test.cc` (`Holds`,\n`Broke`), `src/a.h`,\n`src/b.h`.\n\n"
                "And `src/c.h`.\n")
        self.assertEqual(check_readmes.missing_holders("docs/s.md", text, there.get),
                         ["docs/s.md: tests/a_test.cc has no Broke", "docs/s.md: src/b.h is not there"])

    def test_files_that_a_page_names_by_their_path_are_there(self):
        files = {"src/x/a.cc", "docs/b.md", "include/tdbg/run.h", "src/x/part/c.h"}
        there = "`x/a.cc`, `tdbg/run.h`, `part/c.h`, `src/NAME/a.cc`, `a.cc`, `a/b c.py`\n```\n`src/x/none.cc`\n```\n"
        self.assertEqual(check_readmes.missing_paths("src/x/README.md", there, files), [])
        self.assertEqual(check_readmes.missing_paths("docs/b.md", "`src/x/b.cc` and `part/c.h`", files),
                         ["docs/b.md: src/x/b.cc is not there", "docs/b.md: part/c.h is not there"])

    def test_functions_and_types_that_a_page_on_extending_names_are_in_the_code(self):
        text = "`Selector::Update` (`LeastSteps()`), `put_many`, `<ClassName>`, `step`, `NAME`, `src/a_b.cc`\n\n    uint64_t own_count = 0;\n\n`own_count`\n"
        self.assertEqual(check_readmes.missing_identifiers("docs/adding-a-x.md", text, {"Selector", "LeastSteps", "put_many"}), [])
        self.assertEqual(check_readmes.missing_identifiers("docs/adding-a-x.md", text, {"Selector"}),
                         ["docs/adding-a-x.md: nothing is called LeastSteps", "docs/adding-a-x.md: nothing is called put_many"])


if __name__ == "__main__":
    unittest.main()
