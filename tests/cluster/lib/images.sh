# The images, each made once and known by the hash of its recipe.
# shellcheck shell=bash

recipe_hash() {
    cat "$@" | sha256sum | cut -c1-12
}

have_image() {
    docker image inspect "$1" >/dev/null 2>&1
}

# base_image KIND: a root directory, imported as one layer.
base_image() {
    local kind=$1 tag root
    tag=orchestrate-base:$kind-$(recipe_hash "$here/image/rootfs.sh")
    if ! have_image "$tag"; then
        say "building the $kind root (a minute or two)"
        root=$(mktemp -d "$cache/build/$kind.XXXXXX")
        chmod 755 "$root"
        if ! "$here/image/rootfs.sh" "$kind" "$root" >"$cache/build/$kind.log" 2>&1; then
            tail -n 5 "$cache/build/$kind.log" >&2
            fail "could not build the $kind root, see $cache/build/$kind.log"
        fi
        tar -C "$root" --one-file-system -c . | docker import - "$tag" >/dev/null
        rm -rf "$root"
    fi
    echo "$tag"
}

# host_image RELEASE BASE: users, sshd and engine on top of a base.
host_image() {
    local release=$1 base=$2 tag
    tag=orchestrate-host:$release-$({
        echo "$base"
        cd "$here/image" && find Dockerfile host -type f -printf '%m %p\n' | sort && find Dockerfile host -type f | sort |
            xargs cat
    } | recipe_hash)
    if ! have_image "$tag"; then
        say "building the $release host"
        if ! DOCKER_BUILDKIT=0 docker build -q --network host --build-arg "BASE=$base" -t "$tag" "$here/image" \
            >"$cache/build/host-$release.log" 2>&1; then
            tail -n 8 "$cache/build/host-$release.log" >&2
            fail "could not build the $release host, see $cache/build/host-$release.log"
        fi
    fi
    echo "$tag"
}

# ml_image BASE: the torch image with accelerate, deepspeed and jax from PyPI.
ml_image() {
    local base=$1 tag
    tag=orchestrate-ml:$(echo "$base" | cat - "$here/image/ml/Dockerfile" | recipe_hash)
    if ! have_image "$tag"; then
        say "building the image with accelerate, deepspeed and jax"
        if ! tar -c -C "$here/image/ml" Dockerfile -C /etc/ssl/certs --transform 's/ca-certificates.crt/ca.crt/' --dereference \
            ca-certificates.crt | DOCKER_BUILDKIT=0 docker build -q --network host --build-arg "BASE=$base" \
            --build-arg "PIP_INDEX_URL=${PIP_INDEX_URL:-https://pypi.org/simple}" -t "$tag" - >"$cache/build/ml.log" 2>&1; then
            tail -n 8 "$cache/build/ml.log" >&2
            fail "could not build the image with accelerate, see $cache/build/ml.log"
        fi
    fi
    echo "$tag"
}

# What a host may do: enough for an engine of its own, and never to set the clock.
host_rights() {
    local cap
    for cap in SYS_ADMIN NET_ADMIN NET_RAW SYS_PTRACE DAC_READ_SEARCH LINUX_IMMUTABLE IPC_LOCK SYSLOG SYS_NICE; do
        printf '%s\n' --cap-add "$cap"
    done
    # Raising limits is allowed where this machine may do it itself (bit 24 of the bounding set).
    if [ $((0x$(awk '/^CapBnd/ { print $2 }' /proc/self/status) >> 24 & 1)) = 1 ]; then
        printf '%s\n' --cap-add SYS_RESOURCE --ulimit memlock=-1:-1
    fi
    printf '%s\n' --security-opt seccomp=unconfined --security-opt apparmor=unconfined --cgroupns host \
        --sysctl net.ipv4.ip_forward=1 -v /sys/fs/cgroup:/sys/fs/cgroup:rw --init
}

# payload DIR: a data folder of a Docker Engine that holds the images of the tests, made by the oldest engine of the
# fleet. Every host gets a copy whose layers are hard links: overlay2 never writes to an image's layers.
payload() {
    local host=$1 torch=$2 busybox=$3 ml=$4 dir
    dir=$cache/payload-$(echo "$torch $busybox $ml" | cat - "$here/lib/images.sh" | recipe_hash)
    if [ ! -e "$dir/complete" ]; then
        say "loading the payload images"
        rm -rf "$cache"/payload-*
        payload_build "$host" "$torch" "$busybox" "$ml" "$dir"
    fi
    echo "$dir"
}

payload_build() {
    local host=$1 torch=$2 busybox=$3 ml=$4 dir=$5 name=orchestrate-payload rights
    mapfile -t rights < <(host_rights)
    docker rm -f $name >/dev/null 2>&1 || true
    mkdir -p "$dir/docker"
    docker tag "$torch" orchestrate-torch:test
    docker tag "$busybox" orchestrate-busybox:test
    docker tag "$ml" orchestrate-ml:test
    docker run -d --name $name --hostname payload --network none "${rights[@]}" -v "$dir/docker:/var/lib/docker" \
        "$host" sleep infinity >/dev/null 2>&1
    docker exec $name engine start
    docker save orchestrate-torch:test orchestrate-busybox:test orchestrate-ml:test | docker exec -i $name docker load >/dev/null
    docker exec -i $name sh -eu <<'VARIANTS'
build() {
    docker build -q -t "$1" - >/dev/null
}
build orchestrate-entrypoint:test <<'FILE'
FROM orchestrate-torch:test
ENTRYPOINT ["/bin/echo", "this image has an entrypoint of its own"]
FILE
build orchestrate-through:test <<'FILE'
FROM orchestrate-torch:test
ENTRYPOINT ["/usr/bin/env", "sh", "-c", "echo \"it's through the entrypoint\"; exec \"$@\"", "entry"]
FILE
build orchestrate-user:test <<'FILE'
FROM orchestrate-torch:test
USER 1234:1234
WORKDIR /tmp
FILE
engine stop
VARIANTS
    docker rm -f $name >/dev/null
    touch "$dir/complete"
}

# payload_copy FROM TO
payload_copy() {
    mkdir -p "$2"
    cp -al "$1/docker/overlay2" "$2/"
    cp -a "$1/docker/image" "$2/"
}

images_all() {
    local bookworm torch busybox ml tag
    rm -rf --one-file-system "$cache/build"
    mkdir -p "$cache/build" "$cache/used"
    # The two slow ones at once.
    bookworm=$cache/build/bookworm.tag
    { base_image bookworm >"$bookworm"; } &
    local other=$!
    torch=$(base_image torch)
    wait "$other" || fail "the bookworm root was not built"
    ml=$cache/build/ml.tag
    { ml_image "$torch" >"$ml"; } &
    other=$!
    busybox=$(base_image busybox)
    image_bookworm=$(host_image bookworm "$(cat "$bookworm")")
    image_trixie=$(host_image trixie "$torch")
    wait "$other" || fail "the image with accelerate was not built"
    payload_dir=$(payload "$image_bookworm" "$torch" "$busybox" "$(cat "$ml")")
    for tag in "$torch" "$busybox" "$(cat "$ml")" "$image_bookworm" "$image_trixie"; do
        touch "$cache/used/$tag"
    done
}

# Forgets images that no recipe has named for two weeks; until then another checkout may want them.
images_prune() {
    local tag
    find "$cache/used" -type f -mtime +14 | while read -r tag; do
        docker image rm "${tag##*/}" >/dev/null 2>&1 || true
        rm -f "$tag"
    done
}
