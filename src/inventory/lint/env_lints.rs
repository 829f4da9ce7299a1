//! Lints of variables: those of all ranks, of a host, of the container.

use super::context::LintContext;
use crate::inventory::Launcher;
use crate::inventory::yaml_tree::{SourceLocation, YamlEntry};

/// Names that newer versions no longer read, or warn of.
const RENAMED_VARIABLES: [(&str, &str); 4] = [
    ("JAX_PLATFORM_NAME", "JAX_PLATFORMS"),
    ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    ("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
    ("NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
];
/// What is good for finding a fault and costs much afterwards.
const DEBUG_VARIABLES: [(&str, &str); 5] = [
    ("NCCL_IB_DISABLE", "1"),
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_SHM_DISABLE", "1"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("CUDA_LAUNCH_BLOCKING", "1"),
];

/// One variable: its name, its text, its location and its owner.
struct EnvVariable<'a> {
    name: &'a str,
    text: &'a str,
    location: &'a SourceLocation,
    host: Option<usize>,
}

fn collect_variables<'a>(context: &LintContext<'a>) -> Vec<EnvVariable<'a>> {
    let mut all = Vec::new();
    let mut take = |entries: &'a [YamlEntry], host: Option<usize>| {
        for entry in entries {
            let text = entry.value.as_text();
            all.extend(text.map(|text| EnvVariable { name: &entry.key, text, location: &entry.location, host }));
        }
    };
    for keys in [&["env"][..], &["container", "env"][..]] {
        take(context.tree.get_path(keys).map(|node| node.entries()).unwrap_or_default(), None);
        for (host, member) in context.host_nodes.iter().enumerate() {
            take(member.get_path(keys).map(|node| node.entries()).unwrap_or_default(), Some(host));
        }
    }
    all
}

pub(super) fn lint_env(context: &mut LintContext<'_>) {
    let all = collect_variables(context);
    let value = |name: &str| all.iter().find(|v| v.name == name).map(|v| v.text);
    for variable in &all {
        let EnvVariable { name, text, location: source, .. } = *variable;
        if name == "CUDA_VISIBLE_DEVICES" {
            lint_visible_devices(context, variable);
        }
        if name == "TORCH_CUDA_ARCH_LIST" && lacks_hopper(text) {
            context.report("cuda-arch-list", source, ARCH_MESSAGE, ARCH_HINT);
        }
        lint_renamed(context, |old| old == name, source);
        if DEBUG_VARIABLES.iter().any(|(key, on)| *key == name && *on == text) {
            let message = format!("`{name}={text}` is a debugging aid: it slows every run");
            context.report("nccl-diagnosis-left", source, message, "remove it after debugging");
        }
        if name == "GLOO_SOCKET_IFNAME" && text.contains(['^', '=']) {
            let message = "gloo expects the name of one interface: ^ and = work only for NCCL";
            context.report("gloo-ifname-syntax", source, message, "write the name only, or remove it: orchestrate detects it on each host");
        }
        if name == "NCCL_DEBUG" && matches!(text, "INFO" | "TRACE") && value("NCCL_DEBUG_FILE").is_none() {
            let message = format!("NCCL_DEBUG={text} writes hundreds of lines per rank into its log");
            context.report("nccl-debug-stdout", source, message, "set NCCL_DEBUG_FILE: /tmp/nccl.%h.%p as well, or NCCL_DEBUG: WARN");
        }
        if name == "TORCH_NCCL_BLOCKING_WAIT" && text == "1" {
            let message = "blocking waits make the CPU wait for every collective";
            context.report("blocking-wait", source, message, "remove it: TORCH_NCCL_ASYNC_ERROR_HANDLING ends a rank that waits too long");
        }
        if name == "XLA_PYTHON_CLIENT_MEM_FRACTION" && value("XLA_PYTHON_CLIENT_PREALLOCATE").is_some_and(|v| v == "false") {
            let message = "the fraction applies to preallocated memory, but preallocation is off";
            context.report("xla-mem-fraction", source, message, "remove one of the two");
        }
        if name.starts_with("SLURM_") {
            let message = format!("`{name}` makes programs detect SLURM");
            context.report("slurm-env", source, message, "remove it");
        }
        if matches!(name, "http_proxy" | "https_proxy" | "all_proxy" | "HTTP_PROXY" | "HTTPS_PROXY" | "ALL_PROXY")
            && value("no_proxy").or_else(|| value("NO_PROXY")).is_none()
            && context.host_count > 1
        {
            let message = "without an exception for the hosts, gRPC (JAX's coordinator) uses the proxy and hangs";
            context.report("proxy-without-no-proxy", source, message, "set no_proxy to the hosts' addresses as well");
        }
    }
}

/// Old names that are set, as `is_set` says.
pub(super) fn lint_renamed(context: &mut LintContext<'_>, is_set: impl Fn(&str) -> bool, location: &SourceLocation) {
    for (old, new) in RENAMED_VARIABLES.iter().filter(|(old, _)| is_set(old)) {
        context.report("renamed-variable", location, format!("`{old}` was renamed: newer versions ignore it"), format!("write {new}"));
    }
}

pub(super) const ARCH_MESSAGE: &str =
    "extensions are compiled for older GPUs only: on an H100, H200 or H20 (9.0) they fail with `no kernel image is available`";
pub(super) const ARCH_HINT: &str =
    "add the hosts' capability (`nvidia-smi --query-gpu=compute_cap --format=csv`), or end the list with +PTX";

/// Whether a list of compute capabilities leaves out Hopper and later GPUs. PTX is compiled for newer ones when it is loaded.
pub(super) fn lacks_hopper(list: &str) -> bool {
    let words: Vec<&str> = list.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
    let numbers = words.iter().map(|word| word.trim_end_matches(char::is_alphabetic).parse::<f32>());
    let all: Option<Vec<f32>> = numbers.map(Result::ok).collect();
    all.is_some_and(|all| !all.is_empty() && all.iter().all(|number| *number < 9.0))
}

/// CUDA_VISIBLE_DEVICES by hand: GPUs that are not there, fewer than processes, or a list where `gpus` belongs.
fn lint_visible_devices(context: &mut LintContext<'_>, variable: &EnvVariable<'_>) {
    let EnvVariable { text, location: source, host, .. } = *variable;
    let list: Option<Vec<u32>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    let hosts: Vec<usize> = host.map_or_else(|| (0..context.host_count).collect(), |host| vec![host]);
    let given = hosts.iter().filter_map(|host| context.evaluator.gpu_count(*host)).filter(|gpus| *gpus > 0).min();
    if let (Some(list), Some(given)) = (&list, given)
        && let Some(beyond) = list.iter().find(|index| **index >= given)
    {
        let message = format!("GPU {beyond} does not exist: hosts have {given}, numbered from 0 (CUDA error: invalid device ordinal)");
        return context.report("device-ordinal", source, message, "remove it: CUDA numbers the GPUs of each host from 0");
    }
    let nproc = context.job.nproc_per_node.unwrap_or(0) as usize;
    if let Some(list) = list.filter(|list| list.len() < nproc && context.job.launch.launcher != Launcher::Script) {
        let message = format!("{} GPUs are visible to {nproc} processes", list.len());
        return context.report("device-ordinal", source, message, "remove it, or lower launch.nproc_per_node");
    }
    let message = "every process sees these GPUs, and preflight does not check them";
    context.report(
        "cuda-visible-devices",
        source,
        message,
        "select GPUs with hosts[].gpus or container.gpus; `with: processes`, gpu_visibility: own gives each process its own",
    );
}
