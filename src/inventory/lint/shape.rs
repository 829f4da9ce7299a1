//! Lints of the rest: addresses, the container, how the ranks start and stop.

use std::net::IpAddr;

use super::Look;
use crate::inventory::logs::bytes;
use crate::inventory::tree::{Kind, Place, shorten};
use crate::inventory::{Gate, Start};

pub(super) fn look(look: &mut Look<'_>) {
    addresses(look);
    container(look);
    start(look);
}

fn place(look: &Look<'_>, keys: &[&str]) -> Option<Place> {
    look.tree.find(keys).map(|node| node.place.clone())
}

fn addresses(look: &mut Look<'_>) {
    let Some(node) = look.members.first().and_then(|member| member.get("fabric_address")).filter(|_| look.hosts > 1) else { return };
    let Kind::Scalar { text, .. } = &look.scope.eval(node, Some(0)).kind else { return };
    let (text, place) = (text.clone(), node.place.clone());
    match text.parse::<IpAddr>() {
        Err(_) => {
            let says = format!("`{text}` is a name: each host resolves it by itself, some to 127.0.1.1");
            look.find("master-name", &place, says, "write the address, or leave it out: it is found on the host");
        }
        Ok(address) if address.is_loopback() => {
            let own = |host: usize| look.scope.facts().fabric.get(host).copied().flatten();
            if (1..look.hosts).any(|host| own(host) != own(0)) {
                let says = format!("the others would find themselves at {text}, not the master");
                look.find("master-loopback", &place, says, "write the address at which the other hosts reach the master");
            }
        }
        Ok(_) => {}
    }
}

fn container(look: &mut Look<'_>) {
    let Some(container) = look.job.hosts.first().and_then(|host| host.container.clone()) else { return };
    let block = place(look, &["container"]).unwrap_or_else(|| look.tree.place.clone());
    let at = |look: &Look<'_>, key: &str| place(look, &["container", key]).unwrap_or_else(|| block.clone());
    let run_dir = match look.tree.find(&["run_dir"]).map(|node| &node.kind) {
        Some(Kind::Scalar { text, .. }) => text.clone(),
        _ => "~/.orchestrate".to_owned(),
    };
    for setting in container.exposures(&run_dir) {
        let says = format!("with {} a rank can become root on its host, or change what the host says of the run", shorten(&setting));
        look.find("host-access", &block, says, "leave it out or mount less; else the ranks must be trusted like the ssh user");
    }
    let nproc = look.job.nproc_per_node.unwrap_or(2);
    if let Some(size) = bytes(&container.shm_size).filter(|size| *size < 1 << 30 && nproc > 1)
        && container.gpus != crate::inventory::ContainerGpus::None
    {
        let says = format!("{} MiB of /dev/shm for {nproc} processes: NCCL and data loaders die with bus errors", size >> 20);
        look.find("small-shm", &at(look, "shm_size"), says, "leave it out: 32g are only taken where they are used");
    }
    if container.args.iter().any(|arg| arg == "--ipc=host") {
        let says = "with the host's IPC shm_size has no effect, and what a killed rank leaves in /dev/shm stays on the host";
        look.find("ipc-host", &at(look, "args"), says, "leave it out: the container has a /dev/shm of its own, of shm_size");
    }
    if container.network != "host" && look.hosts > 1 {
        let says = format!("ranks of other hosts cannot reach a container on the network `{}`", container.network);
        look.find("network-not-host", &at(look, "network"), says, "leave it out: host is the default");
    }
    let tag = container.image.rsplit('/').next().unwrap_or_default();
    if look.hosts > 1 && !tag.contains('@') && (!tag.contains(':') || tag.ends_with(":latest")) {
        let says = format!("`{}` is whatever each host pulled last", container.image);
        look.find("unpinned-image", &at(look, "image"), says, "name a tag or a digest, so that all hosts run the same");
    }
}

fn start(look: &mut Look<'_>) {
    let launch = look.job.launch.clone();
    let block = place(look, &["launch"]).unwrap_or_else(|| look.tree.place.clone());
    if look.meets() && (launch.start == Start::Together || launch.gate == Gate::None) {
        let key = if launch.start == Start::Together { "start" } else { "gate" };
        let at = place(look, &["launch", key]).unwrap_or_else(|| block.clone());
        let says = "nobody waits until the master listens: a worker that is early gives up after a minute";
        look.find("no-gate", &at, says, "leave it out: the others start when the master's port listens");
    }
    let seconds = launch.stop_grace.as_secs();
    if seconds < 30 && matches!(look.with.as_str(), "torchrun" | "accelerate" | "deepspeed") {
        let at = place(look, &["launch", "stop_grace"]).unwrap_or_else(|| block.clone());
        let says = format!("after {seconds} s every rank is killed; torchrun itself gives its workers 30 s to save their work");
        look.find("short-grace", &at, says, "write at least 30s, more where a checkpoint takes longer");
    }
    if look.tree.find(&["launch", "master_port"]).is_none() && look.meets() {
        let says = "every run without a port of its own takes 29500: two on one host collide, which preflight finds";
        look.find("undefined-port", &block, says, "set launch.master_port, or `auto`");
    }
}
