#!/bin/sh
# The main job, whole, on this machine: an image folder becomes shards, the shards
# are checked and stream back decoded. `make demo` calls it; DATA names a folder of
# your own images, without it photo-like ones are generated (IMAGES of them in
# CLASSES folders). Writes below demo/ only; may be run again.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}" "${DATA:=}" "${IMAGES:=2000}" "${CLASSES:=50}"

PATH=$PWD/bin:$PATH
out=demo/dataset

run() {
	printf '\n$ %s\n' "$*"
	"$@"
}

src=$DATA
set --
if [ -z "$src" ]; then
	set -- --shard-size 64MiB # few images: small shards show more than one
	src=demo/photos-$IMAGES-in-$CLASSES # made once; gendata goes on where it was interrupted
	run $GO run ./tools/gendata "$src" --images "$IMAGES" --classes "$CLASSES"
fi

rm -rf "$out"
# Exit code 3: packed, and some of your files were bad and left out.
run shardify pack "$src" "$out" "$@" || [ $? = 3 ]
run shardify verify "$out"
run shardify info "$out"
run shardread bench "$out"
