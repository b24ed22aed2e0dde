#!/bin/sh
# gpu.sh test|bench: the tests or the benchmarks of package gpu on this machine's NVIDIA
# card. Where there is no Go, by bin/gpu.test of dist/gpu-kit.tgz, which `make gpu-kit` makes
# elsewhere and is unpacked here.
# RUN and BENCH choose among them.
set -eu
cd "$(dirname "$0")/../gpu"
export SHARDIFY_GPU=require
case ${1-} in
test) set -- -test.v -test.count=1 -test.timeout=10m -test.run="${RUN:-.}" ;;
bench) set -- -test.run='^$' -test.bench="${BENCH:-.}" -test.benchtime="${BENCHTIME:-1s}" -test.timeout=30m ;;
*)
	echo "usage: gpu.sh test|bench" >&2
	exit 2
	;;
esac
if command -v "${GO:=go}" >/dev/null; then
	exec "$GO" test "$@" .
fi
[ -x ../bin/gpu.test ] || {
	echo "gpu.sh: there is no Go here, and no bin/gpu.test: unpack dist/gpu-kit.tgz here, which make gpu-kit makes elsewhere" >&2
	exit 1
}
exec ../bin/gpu.test "$@"
