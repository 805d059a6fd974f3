#!/usr/bin/env bash
# libzstd 1.5.7 for wheels, since Debian 12 has 1.5.4, which reads some damaged streams as good and writes other frames than
# the library that the Aiven plugin carries, which is 1.5.7 too.
# Usage: newer-zstd.sh PYTHON FOLDER; leaves FOLDER/{libzstd.a,libzstd.pc} there, to be put before others in
# PKG_CONFIG_PATH. The sources are libzstd's own lib/ as the sdist of backports.zstd carries it.
set -euo pipefail
python=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
grep -q "dictionary builder" "$folder/libzstd.pc" 2>/dev/null && exit 0 # an older one has no compressor

release=backports_zstd-1.8.0
cat >"$folder/requirements.txt" <<'REQUIREMENTS'
backports.zstd==1.8.0 --hash=sha256:9dae4f4c481716e3db473d667457b4f508ff7459c0931b567a5c9677fb3db316
REQUIREMENTS
"$python" -m pip download --quiet --no-deps --no-binary :all: --require-hashes \
  --requirement "$folder/requirements.txt" --dest "$folder"
tar -C "$folder" -xzf "$folder/$release.tar.gz"
sources=$folder/$release/src/c/zstd/lib

cd "$folder"
for source in "$sources"/common/*.c "$sources"/compress/*.c "$sources"/decompress/*.[cS]; do
  "${CC:-cc}" -O3 -fPIC -DNDEBUG -DZSTD_LEGACY_SUPPORT=0 -c "$source"
done
rm -f libzstd.a
"${AR:-ar}" rcs libzstd.a ./*.o
cat >libzstd.pc <<PACKAGE
Name: zstd
Description: libzstd without its dictionary builder
Version: 1.5.7
Libs: $folder/libzstd.a
Cflags: -I$sources
PACKAGE
