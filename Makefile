# One command a task; `make help` lists them.
# STRATEGY and the like are set on the command line: make demo STRATEGY=mirrored
PYTHON ?= python3
STRATEGY = default
STEPS = 300
N = 200
ARGS =
# Tests run in so many processes; ARGS="-n 0" runs them in one, as --pdb needs.
JOBS = 2
# Now and then TensorFlow crashes as it frees an iterator that a strategy had: a test that took its process with it is
# run once more. One that fails is not.
PYTEST = -m pytest -n $(JOBS) --dist worksteal --reruns 1 --only-rerun 'nothing but crashes'
BACKENDS = jax torch tf_keras
NIGHTLY = test-nightly-tensorflow test-nightly-jax test-nightly-torch

# The CPU wheel of TensorFlow is half the size (274 against 572 MB for 2.21), but it is not everywhere.
ifeq ($(shell uname -sm),Linux x86_64)
TENSORFLOW ?= tensorflow-cpu>=2.18
else
TENSORFLOW ?= tensorflow>=2.18
endif
# Where an index has it, the CPU build of torch is enough: TORCH=torch==2.13.0+cpu.
TORCH ?= torch==2.13.0

# Nothing of the caller's shell decides which backend or device the targets run on.
export KERAS_BACKEND := tensorflow
export CUDA_VISIBLE_DEVICES :=
export TF_CPP_MIN_LOG_LEVEL := 2
export TF_ENABLE_ONEDNN_OPTS := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport TF_USE_LEGACY_KERAS
unexport KERAS_STEPS_TEST_FLAVOUR

.PHONY: help demo demo-gan demo-workers test lint format types wheel clean test-all $(BACKENDS:%=test-%) \
        test-slow test-floor test-nightly $(NIGHTLY) test-distributed test-browser test-kill notebooks docs
.DELETE_ON_ERROR:

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z][a-zA-Z_%-]*:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile
	@echo "make test-B           run the tests on backend B: $(BACKENDS); test-all: on every one"

demo: .venv/.stamp  ## train on handwritten digits; again: go on (STRATEGY=default|mirrored STEPS=300)
	@echo "== demo: $(STEPS) steps on handwritten digits, strategy $(STRATEGY)"
	@.venv/bin/python demo/digits.py --strategy "$(STRATEGY)" --steps "$(STEPS)"

demo-gan: .venv/.stamp  ## train a GAN on them, with two global steps; again: go on (ARGS="--loop --steps 3000")
	@echo "== demo-gan: a generator and a critic of handwritten digits"
	@.venv/bin/python demo/gan.py $(ARGS)

demo-workers: .venv/.stamp  ## the first demo, by two worker processes (STEPS=300)
	@echo "== demo-workers: $(STEPS) steps on handwritten digits, two workers"
	@.venv/bin/python demo/workers.py demo/digits.py --strategy workers --steps "$(STEPS)"

test: .venv/.stamp  ## run the tests on TensorFlow (ARGS="-k NAME -x" goes to pytest)
	@echo "== test: pytest on the TensorFlow backend"
	@.venv/bin/python $(PYTEST) $(ARGS)

lint: .venv/.stamp  ## check the code with ruff: rules and format
	@echo "== lint: ruff check"
	@.venv/bin/ruff check .
	@echo "== lint: ruff format --check"
	@.venv/bin/ruff format --check .

format: .venv/.stamp  ## let ruff mend what it can and format the code
	@echo "== format: ruff check --fix, ruff format"
	@.venv/bin/ruff check --fix --exit-zero .
	@.venv/bin/ruff format .

types: .venv/.stamp  ## check the package's types with mypy
	@echo "== types: mypy on keras_steps"
	@.venv/bin/mypy

wheel: .venv/.stamp  ## build the source archive and the wheel into dist/
	@echo "== wheel: building into dist/"
	@.venv/bin/python -m build --outdir dist .

clean:  ## remove builds and caches (keeps .venv* and demo_output/)
	@echo "== clean: removing builds and caches"
	@rm -rf build dist docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name '.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The same tests on another backend, each in an environment of its own.
test-all: test $(BACKENDS:%=test-%)
test-jax test-torch: export KERAS_BACKEND = $(@:test-%=%)
test-tf_keras: export KERAS_STEPS_TEST_FLAVOUR = tf_keras
$(BACKENDS:%=test-%): test-%: .venv-%/.stamp
	@echo "== $@: pytest on $*"
	@.venv-$*/bin/python $(PYTEST) $(ARGS)

test-slow:  ## run the tests that take seconds each, which the others leave out, on every backend
	@$(MAKE) --no-print-directory test-all ARGS="-m slow $(ARGS)"

# What depends on Keras's version, with the oldest one supported on TensorFlow, and with tomorrow's on each backend.
VERSIONED = tests/contract tests/test_keras_internals*.py tests/test_evaluation_internals.py tests/test_fit_adapter.py \
    tests/test_global_step.py tests/test_neighbours.py tests/test_saving.py tests/test_training_data.py tests/callbacks
test-nightly: $(NIGHTLY)  ## run what depends on Keras's version with tomorrow's Keras, on each of its backends
test-nightly-jax test-nightly-torch: export KERAS_BACKEND = $(@:test-nightly-%=%)
test-floor $(NIGHTLY): test-%: .venv-%/.stamp
	@echo "== $@: pytest with the Keras of .venv-$*"
	@.venv-$*/bin/python $(PYTEST) $(VERSIONED) $(ARGS)

test-distributed: .venv/.stamp $(BACKENDS:%=.venv-%/.stamp)  ## run the tests that start several processes
	@echo "== test-distributed: clusters of tf_keras"
	@KERAS_STEPS_TEST_FLAVOUR=tf_keras .venv-tf_keras/bin/python -m pytest -m distributed tests/distributed $(ARGS)
	@echo "== test-distributed: clusters of Keras 3 on TensorFlow"
	@.venv/bin/python -m pytest -m distributed tests/distributed $(ARGS)
	@echo "== test-distributed: processes of torch"
	@KERAS_BACKEND=torch .venv-torch/bin/python -m pytest -m distributed tests/distributed $(ARGS)
	@echo "== test-distributed: devices of JAX"
	@KERAS_BACKEND=jax .venv-jax/bin/python -m pytest -m distributed tests/distributed $(ARGS)

test-kill: .venv/.stamp $(BACKENDS:%=.venv-%/.stamp)  ## kill trainings N times at random; the outcome has to be the same (N=200)
	@echo "== test-kill: $(N) kills, on every backend"
	@PYTHONPATH=tests .venv/bin/python tests/kill/proof.py $(N) $(ARGS)
	@echo "== test-kill: damaged backups, full disks"
	@.venv/bin/python -m pytest -m kill tests/kill
	@KERAS_BACKEND=jax .venv-jax/bin/python -m pytest -m kill tests/kill -k disk

test-browser: .venv/.stamp-browser  ## look at TensorBoard's page in headless Chromium (has to be installed)
	@echo "== test-browser: pytest with Chromium"
	@.venv/bin/python -m pytest -m browser tests/browser $(ARGS)

notebooks: .venv/.stamp-notebooks  ## run the notebooks from their text, and keep them with their outputs (ARGS=04: that one)
	@echo "== notebooks: running them"
	@.venv/bin/python notebooks/build.py $(ARGS)

docs: .venv/.stamp-docs  ## build the site of the docs into docs/_build/html; a warning is an error
	@echo "== docs: building docs/_build/html/index.html"
	@.venv/bin/python -m sphinx -c docs -EW --keep-going -q . docs/_build/html

# A stamp says that an environment is complete; one made by hand is installed into, not replaced.
.venv/.stamp: REQUIREMENTS = "$(TENSORFLOW)" -e ".[demo,test]"
.venv-jax/.stamp: REQUIREMENTS = -e ".[jax,test]"
.venv-torch/.stamp: REQUIREMENTS = $(TORCH) -e ".[torch,test]"
.venv-tf_keras/.stamp: REQUIREMENTS = -e ".[tf-keras,test]"  # pip before 23.3 misses "tf_keras"
.venv-floor/.stamp: REQUIREMENTS = "$(TENSORFLOW)" "keras==3.12.*" -e ".[test]"
.venv-nightly-tensorflow/.stamp: REQUIREMENTS = "$(TENSORFLOW)" -e ".[test]"
.venv-nightly-jax/.stamp: REQUIREMENTS = -e ".[jax,test]"
.venv-nightly-torch/.stamp: REQUIREMENTS = $(TORCH) -e ".[torch,test]"
.venv-nightly-%/.stamp: AFTERWARDS = $(@D)/bin/python -m pip uninstall --quiet --yes keras && \
	$(@D)/bin/python -m pip install --quiet --pre --force-reinstall --no-deps keras-nightly
.venv/.stamp $(BACKENDS:%=.venv-%/.stamp) .venv-floor/.stamp $(NIGHTLY:test-%=.venv-%/.stamp): setup.cfg
	@echo "== $(@D): installing keras_steps and what it needs (minutes, once)"
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	    "keras_steps needs Python 3.11 or newer, not %d.%d: name one with PYTHON=" % sys.version_info[:2])'
	@$(@D)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet $(REQUIREMENTS)
	@$(or $(AFTERWARDS),true)
	@touch $@

# What only some targets need, beside the rest of .venv.
.venv/.stamp-%: .venv/.stamp
	@echo "== .venv: installing what $* needs"
	@.venv/bin/python -m pip install --quiet -e ".[$*]"
	@touch $@
