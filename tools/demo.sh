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

if [ -n "$DATA" ]; then
	src=$DATA
else
	# The folder is named after what is in it, and gets its name when it is whole.
	src=demo/photos-$IMAGES-in-$CLASSES
	if [ ! -d "$src" ]; then
		rm -rf demo/.photos
		run $GO run ./tools/gendata demo/.photos --images "$IMAGES" --classes "$CLASSES"
		mv demo/.photos "$src"
	fi
fi

rm -rf "$out"
run shardify pack "$src" "$out"
run shardify verify "$out"
run shardify info "$out"
run shardread bench "$out"
