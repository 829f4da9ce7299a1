#!/usr/bin/env bash
# Makes the root directory of one base image: rootfs.sh bookworm|torch|busybox DIR.
# The image cache is keyed by this file's hash, so whatever decides the content of a base image stands here
# and nothing else does.
set -euo pipefail

mirror=${ORCH_TEST_MIRROR:-http://deb.debian.org/debian}
kind=$1
root=$2

# Debian builds torch without libuv, yet four of its own calls ask for it; without these edits torchrun cannot
# meet on two hosts.
without_libuv() {
    local torch=$root/usr/lib/python3/dist-packages/torch/distributed
    sed -i 's/multi_tenant=True,/multi_tenant=True, use_libuv=False,/' "$torch"/elastic/rendezvous/*.py
    sed -i '0,/is_master=False,/s//is_master=False, use_libuv=False,/' "$torch/rendezvous.py"
    sed -i 's/os.environ.get("USE_LIBUV", "1")/os.environ.get("USE_LIBUV", "0")/' "$torch/rendezvous.py"
    if [ "$(cat "$torch"/elastic/rendezvous/*.py "$torch/rendezvous.py" | grep -c 'use_libuv=False')" != 4 ] ||
        ! grep -q '"USE_LIBUV", "0"' "$torch/rendezvous.py"; then
        echo "rootfs: this torch is not the one that these edits were written for" >&2
        return 1
    fi
}

# What neither a host nor a rank reads: 600 MB of documentation, test programs and package archives.
trim() {
    local path
    for path in var/cache/apt var/lib/apt/lists usr/share/doc usr/share/man usr/share/locale usr/lib/libtorch-test; do
        rm -rf "${root:?}/$path"
    done
    rm -rf "$root"/usr/lib/python3/dist-packages/torch/bin/*test*
    mkdir -p "$root/var/cache/apt/archives/partial" "$root/var/lib/apt/lists/partial"
}

case $kind in
bookworm)
    debootstrap --variant=minbase bookworm "$root" "$mirror"
    trim
    ;;
torch)
    debootstrap --variant=minbase --include=python3-torch,procps trixie "$root" "$mirror"
    without_libuv
    trim
    ;;
busybox)
    mkdir -p "$root/bin" "$root/etc" "$root/tmp" "$root/root" "$root/usr/bin"
    chmod 1777 "$root/tmp"
    cp "$(command -v busybox)" "$root/bin/busybox"
    "$root/bin/busybox" --list | while read -r applet; do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
    printf 'root:x:0:\n' >"$root/etc/group"
    ;;
*)
    echo "rootfs: no recipe named $kind" >&2
    exit 2
    ;;
esac
