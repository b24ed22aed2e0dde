#!/bin/sh
# Makes a virtual environment of a list of packages at pinned versions, once per version
# of the list: venv.sh FOLDER LIST. PYTHON is the interpreter, python3 by default. An
# environment that is there is brought to what the list says.
#
# uv installs it: several times as fast as pip, and with one copy on the disk of what
# several environments have. It lies in .cache/tools.
#
# A list may say, each in a line of its own,
#   # over: NAME      what the environment NAME beside it has is there too, if the list
#                     has not got it in another version; it is to be there already
#   # system: P:D …   programs or files that it needs of the system, and their Debian
#                     packages, as programs.sh has them
set -eu

folder=$1
list=$2
python=${PYTHON:-python3}

! cmp -s "$list" "$folder/requirements.txt" || exit 0

version=0.13.8
uv=.cache/tools/uv-$version
if [ ! -x "$uv/bin/uv" ]; then
	rm -rf .cache/tools/uv-*
	"$python" -m venv "$uv"
	"$uv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$version"
fi

echo "installing $list into $folder"
mkdir -p "$(dirname "$folder")"
# A folder whose interpreter is gone, or was another version, is no environment any more.
if [ "$("$folder/bin/python" -V 2>&1)" != "$("$python" -V 2>&1)" ]; then
	rm -rf "$folder"
	"$python" -m venv "$folder"
fi
rm -f "$folder/requirements.txt"
wanted=$(sed -n 's/^# system: //p' "$list")
[ -z "$wanted" ] || sh "$(dirname "$0")/programs.sh" $wanted
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
over=$(sed -n 's/^# over: //p' "$list")
own=$("$folder/bin/python" -c "$packages")
rm -f "$own/over.pth"
if [ -n "$over" ]; then
	# Relative, that the environments may be moved together.
	below=$("$(dirname "$folder")/$over/bin/python" -c "$packages")
	"$python" -c 'import os, sys; print(os.path.relpath(*sys.argv[1:]))' "$below" "$own" >"$own/over.pth"
fi
# What is listed is all that is needed; the resolver has nothing to decide.
"$uv/bin/uv" pip sync --quiet --python "$folder/bin/python" "$list"
cp "$list" "$folder/requirements.txt"
