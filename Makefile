# SPDX-License-Identifier: Apache-2.0
# rths_nodes on a machine with Python >= 3.11 and a C++ compiler. `make help` lists the targets.
# ROS 2 need not be installed: its wheels are installed into .venv, or into .venv-kilted with DISTRO=kilted. If ROS 2
# is sourced (AMENT_PREFIX_PATH is set), no environment is created, and colcon builds the package into install/.

# Arguments of `rths` in `make demo`.
DEMO ?= run chen_ricles_2010 --host composed --report runs/demo.html
# `make test` skips tests with a longer recorded duration, s (test/durations.json); inf: none.
LONGEST ?= 0.5
# Share K (from 0) of N of these longer tests that `make test` still runs, e.g. 2/6.
SHARE ?=
# Collect test/installed, too; plain pytest skips this folder.
INSTALLED := -o norecursedirs=lint
# Tests of `make oldest` and `make newest`.
BOUNDED ?= test -m 'not nodes and not soak' --longest $(LONGEST)
# Arguments of `make fault-soak`.
FAULT_SOAK ?= --runs 200 --seed 1
# Further arguments of pytest, e.g. make test PYTEST_ARGS="-x -k loop"
PYTEST_ARGS ?=
# The Python of .venv: the system's Python, which ROS 2 supports, if it is complete; otherwise the first one in PATH.
# A Python that pyenv has built without optimisation takes 1.4 times as long.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell /usr/bin/python3 -c 'import ensurepip, os, sys, sysconfig, venv; sys.exit(sys.version_info < (3, 11) \
  or not os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null \
  && echo /usr/bin/python3 || echo python3)
endif
# The ROS 2 distribution whose wheels are installed: one of DISTROS. A sourced ROS 2 overrides it.
DISTRO ?= jazzy
DISTROS := jazzy kilted

# Files of the installed package. If one of them changes, the package is installed again.
PACKAGE_FILES := CMakeLists.txt package.xml pyproject.toml setup.py LICENSE config examples launch msg rths_nodes scripts

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.PHONY: help demo test durations oldest newest soak fault-soak hour lint doc colcon pip-check set-up clean

# Prefixes of a sourced ROS 2; empty if the wheels are used.
SOURCED := $(filter-out $(CURDIR)/.venv $(CURDIR)/.venv-%,$(AMENT_PREFIX_PATH))
ifeq ($(filter $(DISTRO),$(DISTROS)),)
$(error DISTRO=$(DISTRO): unknown; known: $(DISTROS))
endif
ifneq ($(SOURCED),)
ifeq ($(filter file $(DISTRO),$(origin DISTRO) $(ROS_DISTRO)),)
$(error DISTRO=$(DISTRO): ROS 2 $(ROS_DISTRO) is sourced)
endif
endif
# Jazzy and a sourced ROS 2 use .venv, build/ and install/; another distribution, .venv-NAME and so on.
SUFFIX := $(if $(SOURCED),,$(patsubst %,-%,$(filter-out jazzy,$(DISTRO))))
VENV := .venv$(SUFFIX)

ifeq ($(SOURCED),)
unexport AMENT_PREFIX_PATH CMAKE_PREFIX_PATH COLCON_PREFIX_PATH LD_LIBRARY_PATH PYTHONPATH
endif
# The ROS 2 wheels restart Python once to set LD_LIBRARY_PATH, and record this in the variable. An inherited value
# belongs to another environment.
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE PYTHONHOME VIRTUAL_ENV
# ROS 2 requires a home folder (for its logs).
ifeq ($(HOME),)
export HOME := $(CURDIR)/build/home
endif
# With this variable, each of the many processes of a rig would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/python_cache
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_ROOT_USER_ACTION := ignore

define LIBRARY
say() { echo "make: $$*" >&2; }
fail() { say "$$*"; exit 1; }

# Hash of the files of the installed package.
package_state() {
  find $(PACKAGE_FILES) -type f ! -path '*/__pycache__/*' -print0 2>/dev/null \
    | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
}

# requirements FOLDER GROUP...: print the requirements of groups of pyproject.toml for DISTRO, one per line.
requirements() {
  "$$1/bin/python" -c '
import re, sys, tomllib
with open("pyproject.toml", "rb") as file: data = tomllib.load(file)
groups = {"build": data["build-system"]["requires"]} | data["project"]["optional-dependencies"]
distributions = data["dependency-groups"]
groups["run"] = distributions["run"] + distributions["$(DISTRO)"]
lowest = lambda name: re.sub(r">=([^,;]+)(,[^;]*)?", r"==\1", name) if "$(BOUND)" == "lowest" else name
groups = {group: rows if group == "build" else [*map(lowest, rows)] for group, rows in groups.items()}
pins = distributions.get("$(DISTRO)-build", [])
groups["build"] = [name for name in groups["build"] if not (pins and name.startswith("ros-"))] + pins
print(*sorted({name for group in sys.argv[1:] for name in groups[group]}), sep="\n")
' "$${@:2}"
}

need_compiler() {
  local python_h='import os, sysconfig; print(os.path.join(sysconfig.get_path("include"), "Python.h"))'
  { command -v "$${CXX:-c++}" && command -v "$${CC:-cc}"; } >/dev/null \
    || fail "no C++ compiler found: sudo apt install g++ python3-dev python3-venv make"
  [ -f "$$("$$1" -c "$$python_h")" ] \
    || fail "no Python.h for $$("$$1" -V): sudo apt install python3-dev"
}

# venv FOLDER GROUP...: create a virtual environment with the requirements of the groups.
venv() {
  local folder=$$1 group; shift
  exec 9<Makefile; flock 9  # one set-up at a time
  local python; python=$$(command -v $(PYTHON)) || fail "no $(PYTHON) found: sudo apt install python3 python3-venv"
  # not the Python of an activated environment, which may be the folder that is created here
  python=$$("$$python" -c 'import os, sys; print(os.path.realpath(sys._base_executable))')
  local identity="$$PWD $$python $(DISTRO)"
  if [ "$$(cat "$$folder/.made/identity" 2>/dev/null)" != "$$identity" ] || ! "$$folder/bin/python" -c '' 2>/dev/null; then
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
      || fail "$$("$$python" -V) is too old; 3.11 or later is required: make PYTHON=python3.12"
    "$$python" -c 'import ensurepip, venv' 2>/dev/null \
      || fail "Python's module venv is missing: sudo apt install python3-venv"
    need_compiler "$$python"
    say "creating $$folder; the first time, this downloads the ROS 2 wheels and takes about a minute"
    rm -rf "$$folder"
    "$$python" -m venv "$$folder"
    mkdir -p "$$folder/.made"
    echo "$$identity" > "$$folder/.made/identity"
  fi
  local missing=() wanted
  for group; do
    wanted=$$(requirements "$$folder" "$$group")
    [ "$$wanted" = "$$(cat "$$folder/.made/$$group" 2>/dev/null)" ] || missing+=("$$group")
  done
  if [ "$${#missing[@]}" -gt 0 ]; then
    say "installing requirements into $$folder: $${missing[*]}"
    requirements "$$folder" "$$@" > "$$folder/.made/all"
    "$$folder/bin/python" -m pip install --quiet --no-compile -r "$$folder/.made/all"
    for group in "$${missing[@]}"; do requirements "$$folder" "$$group" > "$$folder/.made/$$group"; done
  fi
}

# Install the package into $(VENV), or build it for a sourced ROS 2, if it has changed.
package() {
  local state stamp; state=$$(package_state)
  if [ -n '$(SOURCED)' ]; then stamp=install/.rths_nodes; else stamp=$(VENV)/.made/package; fi
  [ "$$(cat "$$stamp" 2>/dev/null)" = "$$state" ] && return
  if [ -n '$(SOURCED)' ]; then
    say "building the package with colcon into install/"
    command -v colcon >/dev/null || fail "no colcon found: sudo apt install python3-colcon-common-extensions"
    rm -rf install/rths_nodes  # colcon does not delete modules that were deleted from the source
    colcon build --packages-select rths_nodes
  else
    need_compiler $(VENV)/bin/python
    say "installing the package into $(VENV)"
    $(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation .
  fi
  echo "$$state" > "$$stamp"
}

# set_up GROUP...: prepare the environment; set $$python and $$rths.
set_up() {
  mkdir -p "$$HOME"
  if [ -n '$(SOURCED)' ]; then
    package
    set +u; . install/local_setup.bash; set -u
    python=$(PYTHON) rths=install/rths_nodes/lib/rths_nodes/rths
  else
    venv $(VENV) build run "$$@"
    package
    export AMENT_PREFIX_PATH="$$PWD/$(VENV)" PATH="$$PWD/$(VENV)/bin:$$PATH"
    python=$(VENV)/bin/python rths=$(VENV)/bin/rths
  fi
  exec 9<&-
}
endef

help:
	printf '%s\n' \
	  'make demo       run $(DEMO)' \
	  'make test       run the tests with the modules of this folder' \
	  'make test LONGEST=inf  also run the longer tests, which make test skips (test/durations.json)' \
	  'make durations  run all tests, and record their durations' \
	  'make oldest     run tests with the lowest versions that pyproject.toml allows; make newest: with the newest' \
	  'make soak       run the tests marked soak: many seeds, long runs, complete tables (many minutes)' \
	  'make fault-soak inject random faults into the node hosts, and judge their recordings; FAULT_SOAK="--runs 50 --seed 2"' \
	  'make hour       run for an hour in real time at 256 Hz: memory, drift of the schedule' \
	  'make lint       ruff, mypy, and counts of the source that may only decrease' \
	  'make doc        build the documentation, build/site/index.html; warnings are errors' \
	  'make colcon     build and test with colcon, as in a ROS 2 workspace' \
	  'make pip-check  pip install . into an empty environment, and send a message' \
	  'make set-up     create .venv and install the package, as the other targets do first' \
	  'make clean      remove all generated files except runs/' \
	  'Add DISTRO=kilted to use the wheels of another ROS 2 (known: $(DISTROS); now: $(DISTRO))'

demo:
	$(LIBRARY)
	set_up
	exec $$rths $(DEMO)

set-up:
	$(LIBRARY)
	set_up

test durations:
	$(LIBRARY)
	set_up test
	$(if $(strip $(PYTEST_ARGS)),exec $$python -m pytest $(PYTEST_ARGS))
	# Without xdist, tests run sequentially. Some tests wait, so there is one worker more than processors. Tests with
	# nodes mostly wait for discovery or for their clock, so there are four workers.
	parallel=(); waiting=()
	if $$python -c 'import xdist' 2>/dev/null; then
	  parallel=(-n "$$(($$(nproc) + 1))" --dist worksteal); waiting=(-n 4 --dist worksteal)
	fi
	$$python -m pytest $(INSTALLED) -m 'not nodes and not soak' "$${parallel[@]}" $(LENGTH)
	$$python -m pytest $(INSTALLED) -m 'nodes and not soak' "$${waiting[@]}" $(LENGTH)

test: LENGTH = --longest $(LONGEST) $(if $(SHARE),--share $(SHARE))
durations: LENGTH = --record-durations

# Tests with the lowest versions that pyproject.toml allows, and with the newest ones, each in a separate environment.
# If the lowest versions fail, raise the bound in pyproject.toml.
oldest: VENV := .venv-oldest$(SUFFIX)
oldest: BOUND := lowest
newest: VENV := .venv-newest$(SUFFIX)
oldest newest:
	$(LIBRARY)
	[ -z '$(SOURCED)' ] || fail "ROS 2 is sourced, so the packages have the versions of the system"
	$(if $(filter newest,$@),rm -rf $(VENV))
	set_up test
	$$python -m pip list > $(VENV)/.made/versions
	exec $$python -m pytest $(BOUNDED) $(PYTEST_ARGS)

soak:
	$(LIBRARY)
	set_up test
	exec $$python -m pytest -m soak $(PYTEST_ARGS)

fault-soak:
	$(LIBRARY)
	set_up
	exec $$python benchmarks/soak.py $(FAULT_SOAK)

hour:
	$(LIBRARY)
	set_up
	exec $$python benchmarks/memory.py --hosts processes --pace realtime --rate 256 --seconds 3600

lint:
	$(LIBRARY)
	set_up test lint
	$$python -m ruff check .
	$$python -m ruff format --check .
	$$python -m mypy
	$$python -m pytest -q test/lint

doc:
	$(LIBRARY)
	if [ -n '$(SOURCED)' ]; then python=$(PYTHON); else venv $(VENV) build run doc; python=$(VENV)/bin/python; fi
	rm -rf build/site
	$$python -m sphinx -q -W --keep-going -E -d build/site.doctrees -b html doc build/site
	echo 'build/site/index.html'

colcon:
	$(LIBRARY)
	mkdir -p "$$HOME"
	options=()
	if [ -z '$(SOURCED)' ]; then
	  venv .venv-colcon$(SUFFIX) build run test colcon
	  exec 9<&-
	  prefix=$$PWD/.venv-colcon$(SUFFIX)
	  export PATH="$$prefix/bin:$$PATH" AMENT_PREFIX_PATH="$$prefix" CMAKE_PREFIX_PATH="$$prefix"
	  options=(--cmake-args "-DPython3_EXECUTABLE=$$prefix/bin/python" -DCMAKE_UNITY_BUILD=ON \
	    -DCMAKE_UNITY_BUILD_BATCH_SIZE=0)
	fi
	export COLCON_LOG_PATH="$$PWD/log$(SUFFIX)"
	bases=(--build-base build$(SUFFIX) --install-base install$(SUFFIX))
	rm -rf install$(SUFFIX)/rths_nodes
	colcon build --packages-select rths_nodes "$${bases[@]}" --event-handlers console_cohesion+ "$${options[@]}"
	colcon test --packages-select rths_nodes "$${bases[@]}" --event-handlers console_direct+ \
	    --return-code-on-test-failure \
	  || { colcon test-result --test-result-base build$(SUFFIX) --verbose; fail "tests failed"; }
	colcon test-result --test-result-base build$(SUFFIX)

pip-check:
	$(LIBRARY)
	need_compiler $(PYTHON)
	folder=$$(mktemp -d)
	trap 'rm -rf "$$folder"' EXIT
	$(PYTHON) -m venv "$$folder/venv"
	options=()
	if [ -n '$(SUFFIX)' ]; then  # pip builds in an environment with Jazzy
	  requirements "$$folder/venv" build > "$$folder/build"
	  "$$folder/venv/bin/python" -m pip install --quiet -r "$$folder/build"
	  options=(--no-build-isolation)
	fi
	"$$folder/venv/bin/python" -m pip install --quiet --no-compile "$${options[@]}" .
	# kernels and digests of scenarios, with the requirements of a run only
	"$$folder/venv/bin/python" -m pip install --quiet --no-compile pytest hypothesis pytest-timeout
	"$$folder/venv/bin/python" -m pytest -p no:cacheprovider test/test_kernels.py test/loop/test_digests.py
	"$$folder/venv/bin/python" -m pip uninstall --quiet --yes pytest hypothesis pytest-timeout
	cd "$$folder"
	venv/bin/python -c '
	from rclpy.serialization import deserialize_message, serialize_message
	from rths_nodes.msg import Target
	sent = Target(step=3, displacement=[0.1, 0.2])
	assert deserialize_message(serialize_message(sent), Target) == sent
	'
	venv/bin/rths --help >/dev/null
	venv/bin/python -m pip uninstall --quiet --yes rths_nodes
	left=$$(find venv -name 'rths_nodes*')
	[ -z "$$left" ] || { echo "pip uninstall leaves $$left"; exit 1; }
	echo 'pip install . into an empty environment works, and pip uninstall removes all files'

clean:
	rm -rf .venv .venv-colcon .venv-oldest .venv-newest build install log .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf $(foreach name,$(DISTROS),.venv-$(name) .venv-colcon-$(name) .venv-oldest-$(name) .venv-newest-$(name) build-$(name) install-$(name) log-$(name))
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
