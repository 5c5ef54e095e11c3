#!/usr/bin/env bash
# Installs the Debian package in a bare Debian 12 and does there what its readers are told to do first, as a user without rights.
#   try_package.sh longhaul_VERSION_ARCHITECTURE.deb [FOLDER]
# Needs root and debootstrap, which asks $MIRROR, or Debian's own mirror. FOLDER is where the system is made, or lies from the last
# time; without it a temporary one is made and removed. Not part of CI: it takes minutes. Ends with 0 when all is well.
set -euo pipefail

deb=$(realpath "$1")
root=${2:-$(mktemp -d)}
leave() {
  umount "$root/dev/shm" "$root/sys" "$root/proc" 2>/dev/null || true
  if [[ -z "${2:-}" ]]; then rm -rf --one-file-system "$root"; fi
}
trap 'leave "$@"' EXIT
inside() { chroot "$root" env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

if [[ ! -e "$root/etc/debian_version" ]]; then
  debootstrap --variant=minbase bookworm "$root" ${MIRROR:+"$MIRROR"} >/dev/null
fi
mkdir -p "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/dev/shm"

echo "== install"
cp "$deb" "$root/tmp/longhaul.deb"
inside apt-get update -qq
inside apt-get purge -y -qq longhaul >/dev/null 2>&1 || true
inside apt-get install -y -qq --no-install-recommends /tmp/longhaul.deb >/dev/null
inside dpkg --verify longhaul
inside sh -c 'id tester >/dev/null 2>&1 || useradd --create-home tester'

echo "== use"
cat >"$root/tmp/try.sh" <<'TRY'
set -eu
cd /usr/share/longhaul
results=$(mktemp -d)
job() { # NAME LAUNCHER...: the five questions, whose answers must be those that the document has
  name=$1
  shift
  "$@" -m examples/needle/model --head-profile examples/needle/profile -i examples/needle/requests.jsonl -o "$results/$name.jsonl" --no-progress
  for code in $(grep -o ': "[0-9]*"' examples/needle/requests.answers.json | grep -o '[0-9]*'); do
    grep -q "\"text\":\" $code" "$results/$name.jsonl" || { echo "$name: no answer $code" >&2; exit 1; }
  done
}
longhaul --version
longhaul doctor -m examples/needle/model --scratch "$results"
job alone longhaul run
job threads longhaul run --ranks 2
job mpi mpirun --oversubscribe -n 2 longhaul run
job watched longhaul supervise -- mpirun --oversubscribe -n 2 longhaul run
job saved longhaul run --save-kv "$results/caches"
job loaded longhaul run --load-kv "$results/caches"
longhaul kv verify "$results/caches"
TRY
inside su tester -c "sh /tmp/try.sh"

echo "== remove"
inside apt-get purge -y -qq longhaul >/dev/null
left=$(cd "$root" && find usr etc var/lib -path var/lib/dpkg -prune -o -name '*longhaul*' -print)
if [[ -n "$left" ]]; then
  echo "left behind: $left" >&2
  exit 1
fi
echo "The package is well."
