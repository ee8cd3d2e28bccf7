"""A wrong include is found, a right one is not; run by pytest or on its own."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_includes  # noqa: E402

CMAKE = """
tdbg_room(base         DEPS)
tdbg_room(tensor       DEPS base)
tdbg_room(store/writer DEPS base
                            tensor)   # over two lines
tdbg_room(store/reader DEPS base)
tdbg_room(cli          DEPS base store/reader)
# tdbg_room(ghost DEPS base)
"""


class CheckIncludesTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.write("CMakeLists.txt", CMAKE)

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def complaints(self, path, text):
        self.write(path, text)
        return check_includes.check(self.root)

    def test_arrows_are_read_from_the_build_and_comments_are_not(self):
        rooms = check_includes.read_rooms(CMAKE)
        self.assertEqual(rooms["store/writer"], {"base", "tensor"})
        self.assertEqual(rooms["base"], set())
        self.assertNotIn("ghost", rooms)

    def test_allowed_includes_pass(self):
        text = '#include "tdbg/status.h"\n#include "base/file.h"\n#include "store/writer/own.h"\n#include <vector>\n'
        self.assertEqual(self.complaints("src/store/writer/a.cc", text), [])

    def test_include_against_the_arrow_is_found_with_its_line(self):
        found = self.complaints("src/base/a.cc", '#include <vector>\n#include "tensor/strided.h"\n')
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("src/base/a.cc:2: base may not include tensor"), found)

    def test_a_name_of_a_room_without_an_arrow_is_found_with_its_line(self):
        found = self.complaints("src/base/a.cc", 'int a;\nconst tdbg::store::SummaryBatch& batch = *span.batch;\n')
        self.assertEqual(found, ["src/base/a.cc:2: base may not name store::; its arrows are "])
        self.assertEqual(len(self.complaints("src/base/a.cc", "tensor::Strided x; store::A y;\n")), 2)

    def test_names_of_ones_own_and_along_an_arrow_and_words_that_are_none_pass(self):
        text = "store::A a; base::B b; restore::C c; other::store::D d;\nauto e = \"store::E\"; ptr->tensor;\n"
        self.assertEqual(self.complaints("src/store/writer/a.cc", text), [])
        self.assertEqual(self.complaints("src/cli/a.cc", "store::A a;\n"), [])
        self.assertEqual(self.complaints("src/base/a.cc", 'auto e = "store::E \\" store::F"; restore::C c;\n'), [])

    def test_reader_and_writer_meet_only_in_format(self):
        self.assertEqual(len(self.complaints("src/store/reader/a.h", '#include "store/writer/b.h"\n')), 1)

    def test_an_arrow_of_an_arrow_is_no_arrow(self):
        self.assertEqual(len(self.complaints("src/cli/a.cc", '#  include "tensor/strided.h"\n')), 1)

    def test_tests_obey_the_same_arrows(self):
        self.assertEqual(len(self.complaints("src/base/a_test.cc", '#include "tensor/strided.h"\n')), 1)

    def test_path_relative_to_the_file_is_found(self):
        self.assertEqual(len(self.complaints("src/base/a.cc", '#include "file.h"\n')), 1)

    def test_heavy_third_party_stays_in_its_room(self):
        self.assertEqual(self.complaints("src/cli/a.cc", "#include <yaml-cpp/yaml.h>\n"), [])
        self.assertEqual(len(self.complaints("src/tensor/a.cc", "#include <yaml-cpp/yaml.h>\n")), 1)

    def test_dear_third_party_stays_in_its_file(self):
        self.assertEqual(self.complaints("src/cli/flags.cc", "#include <CLI/CLI.hpp>\n"), [])
        self.assertEqual(len(self.complaints("src/cli/a.cc", "#include <CLI/CLI.hpp>\n")), 1)

    def test_file_in_no_room_is_found(self):
        self.assertEqual(len(self.complaints("src/shed/a.cc", "")), 1)

    def test_public_headers_know_only_each_other_and_the_standard_library(self):
        self.assertEqual(self.complaints("include/tdbg/a.h", '#include "tdbg/b.h"\n#include <span>\n'), [])
        for bad in ("<fmt/format.h>", "<nlohmann/json.hpp>", "<unistd.h>", '"base/file.h"', '"b.h"'):
            self.assertEqual(len(self.complaints("include/tdbg/a.h", f"#include {bad}\n")), 1, bad)

    def test_examples_use_what_users_have(self):
        self.write("examples/beside.h", "")
        text = '#include "tdbg/run.h"\n#include "beside.h"\n#include <torch/torch.h>\n'
        self.assertEqual(self.complaints("examples/a.cc", text), [])
        self.assertEqual(len(self.complaints("examples/a.cc", '#include "session/session.h"\n')), 1)

    def test_a_build_without_rooms_is_no_success(self):
        self.assertEqual(len(self.complaints("CMakeLists.txt", "project(x)\n")), 1)


if __name__ == "__main__":
    unittest.main()
