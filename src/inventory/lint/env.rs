//! Lints of variables: those of all ranks, of a host, of the container.

use super::Look;
use crate::inventory::tree::{Entry, Kind, Place};

/// Names that newer versions no longer read, or warn of.
const RENAMED: [(&str, &str); 4] = [
    ("JAX_PLATFORM_NAME", "JAX_PLATFORMS"),
    ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    ("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
    ("NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
];
/// What is good for finding a fault and costs much afterwards.
const DIAGNOSIS: [(&str, &str); 5] = [
    ("NCCL_IB_DISABLE", "1"),
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_SHM_DISABLE", "1"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("CUDA_LAUNCH_BLOCKING", "1"),
];

/// One variable: its name, its text, where it stands, whose it is.
struct Variable {
    name: String,
    text: String,
    place: Place,
    host: Option<usize>,
}

fn variables(look: &Look<'_>) -> Vec<Variable> {
    let mut all = Vec::new();
    let mut take = |entries: &[Entry], host: Option<usize>| {
        for entry in entries {
            if let Kind::Scalar { text, .. } = &entry.value.kind {
                all.push(Variable { name: entry.key.clone(), text: text.clone(), place: entry.place.clone(), host });
            }
        }
    };
    for keys in [&["env"][..], &["container", "env"][..]] {
        take(look.tree.find(keys).map(|node| node.entries()).unwrap_or_default(), None);
        for (host, member) in look.members.iter().enumerate() {
            take(member.find(keys).map(|node| node.entries()).unwrap_or_default(), Some(host));
        }
    }
    all
}

pub(super) fn look(look: &mut Look<'_>) {
    let all = variables(look);
    let value = |name: &str| all.iter().find(|v| v.name == name).map(|v| v.text.as_str());
    for variable in &all {
        let Variable { name, text, place, .. } = variable;
        if name == "CUDA_VISIBLE_DEVICES" {
            devices(look, variable);
        }
        if name == "TORCH_CUDA_ARCH_LIST" && misses_new_gpus(text) {
            look.find("cuda-arch-list", place, ARCH_SAYS, ARCH_HINT);
        }
        if let Some((_, new)) = RENAMED.iter().find(|(old, _)| old == name) {
            look.find("renamed-variable", place, format!("`{name}` was renamed: newer versions do not read it"), format!("write {new}"));
        }
        if DIAGNOSIS.iter().any(|(key, on)| key == name && on == text) {
            let says = format!("`{name}={text}` is for finding a fault: it slows every run");
            look.find("nccl-diagnosis-left", place, says, "leave it out once the fault is found");
        }
        if name == "GLOO_SOCKET_IFNAME" && text.contains(['^', '=']) {
            let says = "gloo takes the name of one interface: ^ and = are NCCL's";
            look.find("gloo-ifname-syntax", place, says, "write the name alone, or leave it out: it is found on each host");
        }
        if name == "NCCL_DEBUG" && matches!(text.as_str(), "INFO" | "TRACE") && value("NCCL_DEBUG_FILE").is_none() {
            let says = format!("NCCL_DEBUG={text} writes hundreds of lines a rank into its log");
            look.find("nccl-debug-stdout", place, says, "set NCCL_DEBUG_FILE: /tmp/nccl.%h.%p as well, or NCCL_DEBUG: WARN");
        }
        if name == "TORCH_NCCL_BLOCKING_WAIT" && text == "1" {
            let says = "blocking waits make every collective a barrier of the CPU";
            look.find("blocking-wait", place, says, "leave it out; TORCH_NCCL_ASYNC_ERROR_HANDLING ends a rank that waits too long");
        }
        if name == "XLA_PYTHON_CLIENT_MEM_FRACTION" && value("XLA_PYTHON_CLIENT_PREALLOCATE").is_some_and(|v| v == "false") {
            let says = "the fraction is for preallocated memory, and preallocation is off";
            look.find("xla-mem-fraction", place, says, "leave one of the two out");
        }
        if name.starts_with("SLURM_") {
            let says = format!("`{name}` makes programs believe that they run under SLURM");
            look.find("slurm-env", place, says, "leave it out");
        }
        if matches!(name.as_str(), "http_proxy" | "https_proxy" | "all_proxy" | "HTTP_PROXY" | "HTTPS_PROXY" | "ALL_PROXY")
            && value("no_proxy").or_else(|| value("NO_PROXY")).is_none()
            && look.hosts > 1
        {
            let says = "with a proxy and no exception for the hosts, gRPC (JAX's coordinator) goes through the proxy and hangs";
            look.find("proxy-without-no-proxy", place, says, "set no_proxy to the hosts' addresses as well");
        }
    }
}

pub(super) const ARCH_SAYS: &str =
    "extensions are compiled for older GPUs only: on an H100, H200 or H20 (9.0) they end with `no kernel image is available`";
pub(super) const ARCH_HINT: &str = "add the hosts' own (`nvidia-smi --query-gpu=compute_cap --format=csv`), or end the list with +PTX";

/// Whether a list of compute capabilities leaves out Hopper and whatever comes after it. PTX is compiled for newer ones when it is loaded.
pub(super) fn misses_new_gpus(list: &str) -> bool {
    let words: Vec<&str> = list.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
    let numbers = words.iter().map(|word| word.trim_end_matches(char::is_alphabetic).parse::<f32>());
    let all: Option<Vec<f32>> = numbers.map(Result::ok).collect();
    all.is_some_and(|all| !all.is_empty() && all.iter().all(|number| *number < 9.0))
}

/// CUDA_VISIBLE_DEVICES by hand: GPUs that are not there, fewer than processes, or a list where `gpus` belongs.
fn devices(look: &mut Look<'_>, variable: &Variable) {
    let Variable { text, place, host, .. } = variable;
    let list: Option<Vec<u32>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    let hosts: Vec<usize> = host.map_or_else(|| (0..look.hosts).collect(), |host| vec![host]);
    let given = hosts.iter().filter_map(|host| look.scope.given(*host)).filter(|gpus| *gpus > 0).min();
    if let (Some(list), Some(given)) = (&list, given)
        && let Some(beyond) = list.iter().find(|index| **index >= given)
    {
        let says = format!("GPU {beyond} is not there: hosts have {given}, numbered from 0 (CUDA error: invalid device ordinal)");
        return look.find("device-ordinal", place, says, "leave it out: CUDA numbers the GPUs of each host from 0, not those of the gang");
    }
    let nproc = look.job.nproc_per_node.unwrap_or(0) as usize;
    if let Some(list) = list.filter(|list| list.len() < nproc && look.with != "script") {
        let says = format!("{} GPUs are visible to {nproc} processes", list.len());
        return look.find("device-ordinal", place, says, "leave it out, or lower launch.nproc_per_node");
    }
    let says = "every process sees these, and preflight does not know of them";
    look.find(
        "cuda-visible-devices",
        place,
        says,
        "say which GPUs with hosts[].gpus or container.gpus; with processes, gpu_visibility: own gives each its own",
    );
}
