import ci_times

LOG = """# ninja log v5
0\t1000\t0\tCMakeFiles/tdbg_trial.dir/src/trial/trial.cc.o\t1
0\t2500\t0\tCMakeFiles/store_reader_test.dir/batches/src/store/reader/dump_test.cc.o\t2
10\t3010\t0\tCMakeFiles/tdbg_trial.dir/src/trial/trial.cc.o\t3
3010\t3510\t0\ttdbg\t4
3510\t5510\t0\ttests/kill/CMakeFiles/kill_test.dir/kill_test.cc.o\t5
"""
CTEST = '<testsuite><testcase name="A.b" classname="A.b" time="2"/><testcase name="A.c" classname="A.c" time="1.5"/></testsuite>'
PYTEST = '<testsuites><testsuite><testcase name="test_x" classname="tests.cli.test_ls.TestLs" time="4"/></testsuite></testsuites>'


def test_a_file_that_was_built_twice_counts_as_it_was_built_last():
    assert ci_times.build_times(LOG)["CMakeFiles/tdbg_trial.dir/src/trial/trial.cc.o"] == 3


def test_rooms_tests_and_programs_are_told_apart():
    groups = {ci_times.build_group(output) for output in ci_times.build_times(LOG)}
    assert groups == {"src/trial", "src/store/reader tests", "links and other", "tests/kill"}


def test_results_of_ctest_and_of_pytest_are_grouped():
    assert ci_times.test_times(CTEST) == {("A", "A.b"): 2, ("A", "A.c"): 1.5}
    assert ci_times.test_times(PYTEST) == {("tests.cli.test_ls", "test_x"): 4}


def test_a_table_begins_with_what_is_dearest():
    lines = ci_times.table("t", ci_times.build_times(LOG), ci_times.build_group, 2).splitlines()
    assert lines[0] == "t: 8 s, 4" and "src/trial" in lines[1] and "tests/kill" not in lines[2]
    assert lines[3] == "  dearest:" and lines[4].endswith("trial.cc.o")
