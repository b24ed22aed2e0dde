#!/bin/sh
# Makes a virtual environment of a list of packages at pinned versions, once per version
# of the list: venv.sh FOLDER LIST. PYTHON is the interpreter, python3 by default.
set -eu

folder=$1
list=$2

! cmp -s "$list" "$folder/requirements.txt" || exit 0
echo "installing $list into $folder"
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list"
cp "$list" "$folder/requirements.txt"
