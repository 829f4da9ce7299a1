# Faults injected from outside a host; image/host/usr/local/sbin/fault has those inside.
# shellcheck shell=bash

fault() {
    local host=$1 name=$2 container
    container=$(container "$host")
    shift 2
    case $name in
    pause | unpause) docker "$name" "$container" >/dev/null ;;
    unplug) docker network disconnect "$network" "$container" ;;
    plug)
        docker network connect --ip "$(address "$host")" "$network" "$container"
        docker exec "$container" sh -c 'cat /run/orch-host/names >>/etc/hosts'
        ;;
    power-off) docker kill "$container" >/dev/null ;;
    power-on) power_on "$host" ;;
    hidepid) docker exec "$container" mount -o remount,hidepid=2 /proc ;;
    unhidepid) docker exec "$container" mount -o remount,hidepid=0 /proc ;;
    hang-dockerd) docker exec "$container" pkill -STOP -x dockerd ;;
    unhang-dockerd) docker exec "$container" pkill -CONT -x dockerd ;;
    *) docker exec "$container" fault "$name" "$@" ;;
    esac
}

power_on() {
    rm -f "$run/hosts/$1/ready"
    docker start "$(container "$1")" >/dev/null
    await_ready "$1"
}

# heal HOST...: undoes every fault.
heal() {
    local host container
    for host in "$@"; do
        container=$(container "$host")
        case $(docker inspect -f '{{.State.Status}}' "$container") in
        paused) docker unpause "$container" >/dev/null ;;
        exited) power_on "$host" ;;
        esac
        [ -n "$(docker inspect -f "{{with index .NetworkSettings.Networks \"$network\"}}{{.IPAddress}}{{end}}" "$container")" ] ||
            fault "$host" plug
        docker exec "$container" sh -c 'pkill -CONT -x dockerd; ! grep -q "^proc /proc .*hidepid=" /proc/mounts || mount -o remount,hidepid=0 /proc'
        docker exec "$container" fault heal
    done
}

# hold HOST answer|before K: holds the K-th call of user `swept`.
hold() {
    local shell=$run/hosts/$1/shell
    rm -f "$shell/release" "$shell/state"
    echo "$2 $3" >"$shell/hold"
}

# count HOST: prints the number of calls of `swept`; count HOST reset: restarts at zero and holds no call.
count() {
    local shell=$run/hosts/$1/shell
    case ${2-} in
    '') cat "$shell/count" 2>/dev/null || echo 0 ;;
    reset) rm -f "$shell"/{count,calls,hold,state,release,stdin.*} ;;
    *) fail "count HOST [reset]" ;;
    esac
}
