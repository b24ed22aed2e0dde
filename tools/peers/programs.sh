#!/bin/sh
# Looks for the programs that tests run beside the Python peers, and installs the
# missing ones where apt-get and root allow it. Where they do not, it says what is
# missing and goes on: the tests that need it will fail, by name. With arguments, it looks
# for those instead.
set -eu

# program, or a file's path, and its Debian package
wanted=${*:-'
tar:tar
gzip:gzip
zstd:zstd
djpeg:libjpeg-turbo-progs
jpegtran:libjpeg-turbo-progs
cc:gcc
/usr/include/jpeglib.h:libjpeg62-turbo-dev
'}

missing() {
	for entry in $wanted; do
		case $entry in
		/*) [ -e "${entry%%:*}" ] ;;
		*) command -v "${entry%%:*}" >/dev/null 2>&1 ;;
		esac || printf '%s\n' "$entry"
	done
}

lacking=$(missing)
[ -n "$lacking" ] || exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
	packages=
	for entry in $lacking; do packages="$packages ${entry#*:}"; done
	case $packages in *gcc*) packages="$packages libc6-dev" ;; esac
	echo "installing$packages"
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $packages; } </dev/null >&2 ||
		echo "apt-get did not install$packages" >&2
	lacking=$(missing)
	[ -n "$lacking" ] || exit 0
fi

echo "*** MISSING, and needed by $([ $# -gt 0 ] && echo 'benchmarks or single tests' || echo 'tests (cc: by the race detector)'):" >&2
for entry in $lacking; do
	echo "***   ${entry%%:*} (Debian: apt-get install ${entry#*:})" >&2
done
exit 0
