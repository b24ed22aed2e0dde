# make help lists the targets. Needed: Go, Python 3 with venv, git; `make test`
# also wants a C compiler (for the race detector) and the programs listed in
# tools/peers/programs.sh. Everything made lies in bin/, demo/, .venv/ and .cache/.

GO       ?= go
PYTHON   ?= python3

# Fuzzing and benchmarks: how long, and which.
FUZZTIME ?= 10s
BENCH    ?= .
BENCHTIME ?= 1s
PKGS     ?= ./...
# How often the bench-… targets measure each tool; by default as often as suits each.
ROUNDS   ?=

# The demo's and the benchmarks' data: a folder of your own images, one folder a
# class, or generated ones.
DATA     ?=
IMAGES   ?= 2000
CLASSES  ?= 50
# Real photographs for benchmarks and tests; without them, generated ones.
PHOTOS   ?= $(or $(SHARDIFY_PHOTOS),$(wildcard ../shared/data/imagenet-sample))
# The environments of the peers of bench-peers: lists in tools/peers.
PEERS    ?= dali ffcv grain loaders tensorflow torch

BENCHFLAGS = $(if $(ROUNDS),-rounds $(ROUNDS)) -photos '$(PHOTOS)'

PLATFORMS := linux/amd64 linux/arm64 darwin/arm64 windows/amd64

GOLANGCI_LINT := v2.15.0
# The GPU's kernels are compiled by one version of clang: others make other code.
KERNEL_CLANG := clang-19
KERNEL_FLAGS := --target=nvptx64-nvidia-cuda -march=sm_75 -O3 -ffp-contract=off -ffreestanding -fno-verbose-asm -fno-ident -Wall -Wextra -Werror -S
LINT := .cache/tools/golangci-lint-$(GOLANGCI_LINT)
# The S3 servers of the tests.
VERSITYGW := v1.8.0
MINIO := v0.0.0-20260212201848-7aac2a2c5b7c
S3_SERVERS := .cache/tools/versitygw-$(VERSITYGW) .cache/tools/minio-$(MINIO)

# Where goroutines share memory: these rooms are tested under the race detector.
RACE := $(addsuffix /...,$(wildcard ./store ./source ./shard ./dataset ./pack ./reader ./imaging ./feed ./observe ./gpu ./cmd))

# Where there is assembly: these rooms are tested without it, too, as they run on every
# other platform.
GENERIC := ./imaging/jpeg/... ./imaging/resize ./imaging/augment ./imaging/tensor

.DEFAULT_GOAL := help
.PHONY: help build demo test generic race bench bench-pack bench-scale bench-verify bench-peers bench-jpeg bench-memory bench-first bench-s3 soak-resume soak-s3 fuzz \
	test-python wheel asm asm-check lint fmt fmt-check mod-check vet cross peers programs tools clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Variables: DATA=dir (demo), IMAGES=n CLASSES=n (demo without DATA), FUZZTIME=30s,'
	@echo '           PKGS=./index (test, fuzz, bench), BENCH=regexp BENCHTIME=5x, ROUNDS=n (bench-*), SOAK=30m,'
	@echo '           PHOTOS=dir (bench-*: JPEG files), PEERS="dali torch" (bench-peers, bench-pack: of $(PEERS))'

build: ## build bin/shardify and bin/shardread, stamped with git's version
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(if $(shell git rev-parse -q --verify HEAD 2>/dev/null),true,false) -o bin/ ./cmd/...

demo: build ## pack, verify and stream a generated data set, or DATA=dir
	@GO='$(GO)' DATA='$(DATA)' IMAGES='$(IMAGES)' CLASSES='$(CLASSES)' sh tools/demo.sh

test: peers peers-torch programs tools ## all tests, with every peer, then without assembly, the race detector, the Python package
	@status=0; \
	export SHARDIFY_PEERS=require; \
	echo '$(GO) test $(PKGS)'; \
	CGO_ENABLED=0 $(GO) test -timeout 15m $(PKGS) || status=1; \
	$(MAKE) --no-print-directory generic || status=1; \
	$(MAKE) --no-print-directory race || status=1; \
	$(if $(filter ./...,$(PKGS)),$(MAKE) --no-print-directory test-python || status=1;) \
	exit $$status

# tests/torch needs torch, which has an environment of its own.
test-python: build peers peers-torch ## the Python package: format, lint, types, tests with and without torch
	@status=0; \
	export SHARDIFY_PEERS=require SHARDREAD_PROGRAMS='$(CURDIR)/bin'; \
	cd python && bin='$(CURDIR)/.venv/bin'; \
	"$$bin/ruff" format --check . || status=1; \
	"$$bin/ruff" check . || status=1; \
	"$$bin/mypy" || status=1; \
	"$$bin/python" -m pytest -q --ignore tests/torch || status=1; \
	[ ! -d tests/torch ] || '$(CURDIR)/.cache/peers/torch/bin/python' -m pytest -q tests/torch || status=1; \
	exit $$status

.PHONY: test-training
test-training: build peers-torch ## a small network learns as much through shardread as through ImageFolder: minutes
	cd python && SHARDIFY_PEERS=require SHARDREAD_PROGRAMS='$(CURDIR)/bin' SHARDIFY_TRAINING=1 \
		'$(CURDIR)/.cache/peers/torch/bin/python' -m pytest -q tests/torch/test_training.py

wheel: ## dist/*.whl: the Python package with both programs inside, for Linux on amd64 and arm64
	@mkdir -p dist && rm -f dist/shardread-*.whl
	@for arch in amd64 arm64; do GOOS=linux GOARCH=$$arch $(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist ./python || exit 1; done
	@ls -l dist

generic: ## the tests of the rooms with assembly, without it
	CGO_ENABLED=0 $(GO) test -tags purego -timeout 15m $(if $(filter ./...,$(PKGS)),$(GENERIC),$(PKGS))

race: ## the tests of the rooms with goroutines, under the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 15m $(if $(filter ./...,$(PKGS)),$(RACE),$(PKGS))

bench: ## Go benchmarks: BENCH=regexp PKGS=./shard/... BENCHTIME=1s
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime '$(BENCHTIME)' -timeout 60m $(PKGS)

bench-pack: build environments ## pack against tar, ShardWriter, TFRecordWriter, ArrayRecord, MDSWriter, LitData, FFCV
	$(GO) run ./tools/bench $(BENCHFLAGS) pack

bench-scale: build ## pack a million tiny files: peak memory, files/s
	$(GO) run ./tools/bench scale

bench-verify: build ## verify on one core, page cache warm
	$(GO) run ./tools/bench $(BENCHFLAGS) verify

bench-peers: build environments ## photographs to batches of random crops, against ten loaders in PEERS
	$(GO) run ./tools/bench $(BENCHFLAGS) -peers '$(PEERS)' peers

.PHONY: bench-check bench-publish environments
bench-check: environments ## that PEERS load the same images with the same labels as we do
	$(GO) test ./tools/bench -run '^TestLoadersAgree$$' -count=1 -v -peers '$(PEERS)'

bench-publish: peers-plot ## the last bench-pack and bench-peers into docs/: figures, tables, plots
	$(GO) run ./tools/bench publish

# Those of PEERS. One that cannot be had here is left out, and said to be.
environments:
	@for name in $(PEERS); do \
		$(MAKE) --no-print-directory peers-$$name || echo "*** no $$name: it will be listed as failed" >&2; \
	done

bench-jpeg: build peers programs peers-codecs peers-torch ## decoding JPEG on one core, against libjpeg-turbo, OpenCV, torchvision, Pillow
	$(GO) run ./tools/bench $(BENCHFLAGS) jpeg

.PHONY: bench-augment
bench-augment: build peers-torch ## transforms on one core, against torchvision's of tensors and of PIL images
	$(GO) run ./tools/bench $(BENCHFLAGS) augment

.PHONY: compare-pixels
compare-pixels: peers peers-torch peers-dali ## what Kornia and DALI make of a photograph, against Pillow
	@dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && \
	photograph=$$(ls '$(PHOTOS)'/*.[jJ]* | head -n 1) && echo "$$photograph" && \
	.venv/bin/python tools/peers/pixels.py pillow "$$photograph" "$$dir/pillow.npz" && \
	.cache/peers/torch/bin/python tools/peers/pixels.py kornia "$$dir/pillow.npz" && \
	.cache/peers/dali/bin/python tools/peers/pixels.py dali "$$dir/pillow.npz"

bench-memory: build ## resident memory of shardread against its budget, with outliers
	$(GO) run ./tools/bench memory

bench-first: build ## from a process's start to the first batch of 10,000 shards
	$(GO) run ./tools/bench $(BENCHFLAGS) first

bench-s3: build tools peers-s3 ## shards in a bucket: reading and packing, against s5cmd; with latency
	$(GO) run ./tools/bench $(BENCHFLAGS) s3

.PHONY: bench-scan
bench-scan: build tools peers ## shards in a bucket front to back: index, verify, pack; with latency
	$(GO) run ./tools/bench $(BENCHFLAGS) scan

.PHONY: kernels
kernels: ## compile the GPU's kernels: gpu/kernels/kernels.ptx
	$(KERNEL_CLANG) $(KERNEL_FLAGS) -o gpu/kernels/kernels.ptx gpu/kernels/kernels.c

# GPU_PYTHON is a Python with numpy, pytest and torch with CUDA, on a machine with a card.
GPU_PYTHON ?= python3

.PHONY: test-gpu
test-gpu: ## the tests of gpu on this machine's NVIDIA card, which must be there; and of Python on it, with bin/ and GPU_PYTHON
	@GO='$(GO)' sh tools/gpu.sh test
	@$(GPU_PYTHON) -c 'import numpy, pytest, torch; assert torch.cuda.is_available()' 2>/dev/null || { \
		echo 'SKIPPED LOUDLY: python/tests/cuda: $(GPU_PYTHON) has no numpy, pytest and torch with CUDA; set GPU_PYTHON' >&2; exit 0; }; \
	cd python && SHARDIFY_GPU=require SHARDREAD_PROGRAMS='$(CURDIR)/bin' $(GPU_PYTHON) -m pytest -q -p no:cacheprovider -o addopts=--import-mode=importlib tests/cuda

.PHONY: bench-gpu
bench-gpu: ## the floors of docs/gpu.md on this machine's NVIDIA card, and what each kernel does
	@GO='$(GO)' BENCH='$(BENCH)' BENCHTIME='$(BENCHTIME)' sh tools/gpu.sh bench

.PHONY: bench-train
bench-train: build peers-torch ## training in PyTorch fed by shardread, by DataLoader, and by a batch on the GPU, the ceiling
	SHARDREAD_PROGRAMS='$(CURDIR)/bin' .cache/peers/torch/bin/python python/benchmarks/train.py $(if $(PHOTOS),--photos '$(PHOTOS)') $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: bench-gpu-python
bench-gpu-python: ## who should copy batches to the card for torch, the client or the server (GPU_PYTHON: with torch)
	SHARDREAD_PROGRAMS='$(CURDIR)/bin' $(GPU_PYTHON) python/benchmarks/device.py $(if $(PHOTOS),--photos '$(PHOTOS)')

.PHONY: bench-gpu-jpeg
bench-gpu-jpeg: ## JPEG on the card: gpu.Decode, nvJPEG alone, torchvision; PHOTOS (GPU_PYTHON: with torch and torchvision)
	$(GPU_PYTHON) python/benchmarks/jpeg.py --photos '$(PHOTOS)'

.PHONY: gpu-kit
gpu-kit: ## dist/gpu-kit.tgz: bin/ with the programs and gpu's tests, for a machine with a card and no Go
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/ ./cmd/...
	CGO_ENABLED=0 $(GO) test -c -ldflags '-s -w' -o bin/gpu.test ./gpu
	@mkdir -p dist
	tar czf dist/gpu-kit.tgz bin/shardify bin/shardread bin/gpu.test
	@ls -l dist/gpu-kit.tgz

soak-s3: tools ## SOAK=30m of epochs from an S3 server that fails in each hundredth request
	$(GO) test ./reader -run '^TestS3Faults$$' -count=1 -v -timeout 0 -soak $(SOAK)

.PHONY: soak-python bench-python
soak-python: build peers ## 10,000 loaders in Python, opened and closed, each with a server of its own
	cd python && SHARDREAD_SOAK=10000 SHARDREAD_PROGRAMS='$(CURDIR)/bin' '$(CURDIR)/.venv/bin/python' -m pytest -q \
		--timeout 0 -k test_opening_and_closing_leaves_nothing tests/test_server.py

bench-python: build peers ## the loop in Python against shardread bench, and what it takes by itself
	SHARDREAD_PROGRAMS='$(CURDIR)/bin' '$(CURDIR)/.venv/bin/python' python/benchmarks/loop.py $(if $(PHOTOS),--photos '$(PHOTOS)')

soak-resume: ## kill and resume ranks 50 times over three epochs, in changing worlds
	$(GO) test ./reader -run '^TestKillAndResume$$' -count=1 -v -timeout 30m -kills 50

.PHONY: golden-augment
golden-augment: peers-torch ## what torchvision makes of small images, for the tests of imaging/augment
	.cache/peers/torch/bin/python imaging/augment/testdata/golden.py

fuzz: ## every fuzz target for FUZZTIME each
	@targets=$$($(GO) test -list '^Fuzz' $(PKGS)) || { echo "$$targets"; exit 1; }; \
	echo "$$targets" | awk '/^Fuzz/ { name[n++] = $$1 } /^ok/ { while (n > 0) print $$2, name[--n] }' | \
	while read -r pkg name; do \
		echo "$(GO) test -fuzz $$name $$pkg"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime '$(FUZZTIME)' -fuzzminimizetime 20x "$$pkg" </dev/null || exit 1; \
	done

lint: $(LINT) ## golangci-lint with the house's import rules, which are tested first
	LINT='$(LINT)' $(GO) test ./tools/house
	$(LINT) run ./...

asm: ## write the assembly of imaging/... with avo (tools/asm)
	cd tools/asm && $(GO) run .

asm-check: ## fail if the assembly is not what tools/asm writes
	@cd tools/asm && $(GO) vet . && $(GO) run . -check

fmt: $(LINT) ## format all Go code, and Python's where .venv is
	$(LINT) fmt ./...
	[ ! -x .venv/bin/ruff ] || .venv/bin/ruff format python

fmt-check: $(LINT) ## fail if a file is not formatted
	@unformatted=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)) && \
		if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted" | sort -u; exit 1; fi
	$(LINT) fmt --diff ./...

mod-check: ## fail if go.mod or go.sum is not tidy, or a module is not what go.sum says
	$(GO) mod tidy -diff
	$(GO) mod verify

vet: ## go vet
	$(GO) vet ./...

cross: ## build and vet for every platform, without cgo
	@for p in $(PLATFORMS); do \
		echo "$$p"; \
		export CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/}; \
		$(GO) build ./... && $(GO) vet ./... || exit 1; \
	done

# The linter is built from its own module, with its own dependencies, so that they
# stay out of ours.
$(LINT):
	@mkdir -p .cache/tools
	GOBIN='$(CURDIR)/.cache/tools' GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	@mv .cache/tools/golangci-lint $@

# So is the S3 server.
.cache/tools/versitygw-%: MODULE = github.com/versity/versitygw/cmd/versitygw
.cache/tools/minio-%: MODULE = github.com/minio/minio
$(S3_SERVERS): .cache/tools/%:
	@mkdir -p .cache/tools
	rm -f .cache/tools/$(notdir $(MODULE))*
	CGO_ENABLED=0 GOBIN='$(CURDIR)/.cache/tools' GOFLAGS= $(GO) install $(MODULE)@$(patsubst $(notdir $(MODULE))-%,%,$*)
	@mv .cache/tools/$(notdir $(MODULE)) $@

tools: $(S3_SERVERS) ## install the S3 servers of the tests into .cache/tools: minutes, once

peers: ## install the Python peers into .venv, once per version of their list
	@PYTHON='$(PYTHON)' sh tools/peers/venv.sh .venv tools/peers/requirements.txt

# Peers of benchmarks alone, by the name of their list: .cache/peers/NAME, of
# tools/peers/NAME.txt.
peers-tensorflow: peers ;
peers-ffcv peers-loaders: peers-torch
peers-%:
	@PYTHON='$(PYTHON)' sh tools/peers/venv.sh .cache/peers/$* tools/peers/$*.txt

programs: ## install the system programs that tests use, where apt-get and root allow it
	@sh tools/peers/programs.sh
	@sh tools/peers/programs.sh $(KERNEL_CLANG):$(KERNEL_CLANG)

clean: ## remove what was made, but for .venv and the linter
	rm -rf bin demo dist .cache/bench
