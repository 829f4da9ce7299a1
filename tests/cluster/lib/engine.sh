# The engine that runs the test hosts: a dockerd separate from any other on the machine.
# shellcheck shell=bash

# The path of a unix socket is limited in length, so the engine's runtime files are here and not in the cache.
engine_run=/run/orchestrate-tests
engine_socket=$engine_run/docker.sock
export DOCKER_HOST=unix://$engine_socket

# Debian's client matches Debian's engine; another client may come first on PATH.
docker() {
    if [ -x /usr/bin/docker ]; then
        /usr/bin/docker "$@"
    else
        command docker "$@"
    fi
}

packages_needed() {
    local pair
    for pair in dockerd:docker.io debootstrap:debootstrap busybox:busybox-static ssh:openssh-client \
        ssh-keygen:openssh-client ip:iproute2 iptables:iptables ps:procps tmux:tmux flock:util-linux g++:g++; do
        [ -n "$(PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}")" ] || echo "${pair#*:}"
    done | sort -u
}

# Installs missing packages without starting their services.
packages_install() {
    local missing policy=/usr/sbin/policy-rc.d ours=
    mapfile -t missing < <(packages_needed)
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || fail "missing packages, and only root may install them: ${missing[*]}"
    command -v apt-get >/dev/null || fail "missing ${missing[*]}, and this is no Debian: install them by hand"
    say "installing ${missing[*]}"
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        ours=1
    fi
    local code=0
    {
        apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}"
    } >"$cache/apt.log" 2>&1 || code=$?
    [ -z "$ours" ] || rm -f $policy
    [ $code = 0 ] || { tail -n 5 "$cache/apt.log" >&2; fail "apt-get failed, see $cache/apt.log"; }
}

engine_answers() {
    [ -S $engine_socket ] && docker info >/dev/null 2>&1
}

# The pids of all processes that name our runtime directory or namespace.
engine_pids() {
    local dir comm
    for dir in /proc/[0-9]*; do
        comm=$(cat "$dir/comm" 2>/dev/null) || continue
        case $comm in
        dockerd | containerd | containerd-shim*)
            if tr '\0' ' ' <"$dir/cmdline" 2>/dev/null | grep -qF "$engine_run"; then
                echo "${dir#/proc/}"
            fi
            ;;
        esac
    done
}

# Removes what a killed engine leaves behind: shims, the hosts' processes (found by our cgroup), mounts, the bridge, pid files.
engine_sweep() {
    local pid
    for pid in $(engine_pids); do
        kill -9 "$pid" 2>/dev/null || true
    done
    cgroup_kill
    awk -v run="$engine_run/" -v data="$cache/" '
        index($2, run) == 1 || index($2, data) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r pid; do umount -l "$pid" 2>/dev/null || true; done
    for pid in /sys/class/net/orch-test*; do
        [ ! -e "$pid" ] || ip link delete "${pid##*/}" 2>/dev/null || true
    done
    rm -rf $engine_run
}

cgroup_kill() {
    local turn
    for turn in $(seq 50); do
        find /sys/fs/cgroup -path '*/orchestrate-tests/*' -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u |
            grep -v '^0$' >"$cache/stray" || true
        [ -s "$cache/stray" ] || break
        [ "$turn" != 50 ] || fail "processes of earlier test hosts do not die: $(tr '\n' ' ' <"$cache/stray")"
        xargs -r kill -9 <"$cache/stray" 2>/dev/null || true
        sleep 0.1
    done
    rm -f "$cache/stray"
    find /sys/fs/cgroup -depth -type d \( -path '*/orchestrate-tests/*' -o -name orchestrate-tests \) \
        -exec rmdir {} + 2>/dev/null || true
}

engine_start() {
    ! engine_answers || return 0
    [ "$(id -u)" = 0 ] || fail "only root may start a Docker Engine"
    engine_sweep
    mkdir -p $engine_run "$cache/engine"
    echo '{}' >"$cache/engine/daemon.json"
    PATH=$PATH:/usr/sbin:/sbin setsid dockerd --config-file "$cache/engine/daemon.json" -H "$DOCKER_HOST" \
        --data-root "$cache/engine/data" --exec-root $engine_run/exec --pidfile $engine_run/docker.pid \
        --containerd-namespace orchestrate-tests --containerd-plugins-namespace orchestrate-tests-plugins \
        --bridge=none --iptables=false --ip6tables=false --ip-masq=false --ip-forward=false \
        --storage-driver=overlay2 --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent=/orchestrate-tests/hosts \
        --log-level=warn >"$cache/engine/dockerd.log" 2>&1 </dev/null 9>&- &
    local turn
    for turn in $(seq 300); do
        ! engine_answers || return 0
        [ "$turn" -lt 10 ] || [ -e $engine_run/docker.pid ] || [ -n "$(engine_pids)" ] || break
        sleep 0.1
    done
    tail -n 5 "$cache/engine/dockerd.log" >&2
    fail "the engine of the test hosts did not start, see $cache/engine/dockerd.log"
}

engine_stop() {
    local pid turn
    pid=$(cat $engine_run/docker.pid 2>/dev/null) || pid=
    if [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
        kill -TERM "$pid"
        for turn in $(seq 200); do
            kill -0 "$pid" 2>/dev/null || break
            [ "$turn" != 200 ] || say "the engine does not end, it is killed"
            sleep 0.1
        done
    fi
    engine_sweep
}
