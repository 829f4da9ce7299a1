//! What the GPUs and machines of a row's hosts do together, as columns of text. Hosts with stale values are left out of sums.

use crate::event::UnixMillis;
use crate::state::HostState;
use crate::tui::model::Model;

use super::formatting::{or_dash, whole};
use super::{formatting, host_status};

/// Mean utilization, memory, highest temperature, power and the age of the last output.
pub(super) fn gpu_totals_text<'a>(model: &Model, hosts: impl Iterator<Item = &'a HostState> + Clone, last_output_at: UnixMillis) -> String {
    // A single host keeps its last values, which are drawn as old.
    let is_single = hosts.clone().nth(1).is_none();
    let fresh = hosts.filter(|host| is_single || !model.is_stale(host.gpus_at));
    let all = host_status::sum_gpus(fresh.flat_map(|host| host.gpus.iter()));
    format!(
        "{:>4} {:>4} {:>4} {:>7} {:>5} ",
        whole(all.utilization, "%"),
        whole(all.memory, "%"),
        whole(all.hottest, model.theme.degree()),
        or_dash(all.power.map(formatting::format_watts)),
        formatting::format_age(last_output_at, model.now),
    )
}

/// CPU, memory, network (only InfiniBand if there is any), throttled GPUs, and the age of the oldest value.
pub(super) fn machine_text<'a>(model: &Model, hosts: impl Iterator<Item = &'a HostState> + Clone) -> String {
    let all = host_status::sum_machines(hosts.clone().filter(|host| host.host_metrics_at > 0 && !model.is_stale(host.host_metrics_at)));
    let fresh = hosts.clone().filter(|host| !model.is_stale(host.gpus_at));
    let slow = fresh.flat_map(|host| host.gpus.iter()).filter(|gpu| gpu.slowdown_reason().is_some()).count();
    let oldest = hosts.clone().flat_map(|host| [host.gpus_at, host.host_metrics_at]).filter(|at| *at > 0).min().unwrap_or(0);
    format!(
        "{:>4} {:>4} {:>9} {:>4} {:>5} ",
        whole(all.cpu, "%"),
        whole(all.memory, "%"),
        or_dash(all.network.map(formatting::format_rate)),
        if slow == 0 { "-".to_owned() } else { slow.to_string() },
        formatting::format_age(oldest, model.now),
    )
}
