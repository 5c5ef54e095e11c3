#!/usr/bin/env bash
# Installs the Debian packages that Longhaul needs and that are missing; as root, or through sudo. Does nothing where all are there.
#   install_dependencies.sh          to build and run
#   install_dependencies.sh --test   also what the tests need
#   install_dependencies.sh --package  also what making a Debian package needs
set -euo pipefail
purpose=build
case "$#:${1:-}" in
  0:) ;;
  1:--test | 1:--package) purpose=${1#--} ;;
  *) echo "usage: tools/install_dependencies.sh [--test | --package]" >&2; exit 2 ;;
esac

packages=(
  g++ cmake ninja-build pkg-config python3
  libopenmpi-dev openmpi-bin libhdf5-openmpi-dev   # ranks on several nodes; export of KV caches
  libboost1.81-dev                                 # Asio: the control plane; Beast: the status page
  libdnnl-dev                                      # oneDNN: matrix products
  libfmt-dev nlohmann-json3-dev libpcre2-dev libicu-dev libssl-dev libcli11-dev libtomlplusplus-dev
)
if [[ $purpose == test ]]; then
  packages+=(libgtest-dev libgmock-dev libbenchmark-dev clang-16 libclang-rt-16-dev libomp-16-dev lld-16 clang-format git binutils dpkg-dev file python3-numpy python3-h5py python3-jsonschema python3-prometheus-client libfaketime
    iproute2 nftables slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge  # hosts on one machine, and Slurm on them
    chromium)  # looks at the status page
fi
if [[ $purpose == package ]]; then
  packages+=(dpkg-dev file)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "install_dependencies.sh: this is not Debian or Ubuntu; please install the equivalents of: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if ((EUID != 0)); then
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
