//! Events about one host: its connection, launcher, GPUs, metrics and disk.

use crate::event::{EventKind, UnixMillis};

use super::bounded_text::{keep_beginning, keep_first_bytes};
use super::{ConnectionStatus, DiskSpace, RunState, host_trace};

/// How many processes on the GPUs of a host are kept.
const MAX_GPU_PROCESSES: usize = 512;
/// The most bytes of nvidia-smi's output that are kept.
const MAX_NVIDIA_SMI_BYTES: usize = 64 << 10;

impl RunState {
    pub(super) fn apply_host_event(&mut self, host: u32, kind: &EventKind, at: UnixMillis) {
        let Some(host) = self.hosts.get_mut(host as usize) else { return };
        match kind {
            EventKind::HostConnecting { .. } => host.set_connection_status(ConnectionStatus::Connecting, "", at),
            EventKind::HostConnected { clock_offset, uncertainty, .. } => {
                self.output_activity.record_connected(at);
                host.set_connection_status(ConnectionStatus::Connected, "", at);
                host.clock_offset = Some((*clock_offset, *uncertainty));
            }
            EventKind::HostLost { error, hint, will_retry, .. } => {
                host.set_connection_status(if *will_retry { ConnectionStatus::Retrying } else { ConnectionStatus::Unreachable }, error, at);
                host.connection_hint = keep_beginning(hint);
            }
            EventKind::LauncherStarted { .. } => {
                (host.launcher_started, host.launcher_exit, host.launcher_was_stopped) = (Some(at), None, false);
            }
            EventKind::LauncherExited { exit, ended_at, stopped, .. } => {
                (host.launcher_exit, host.launcher_was_stopped) = (Some((*exit, *ended_at)), *stopped == Some(true));
            }
            EventKind::Gpus { gpus, .. } => host.record_gpu_samples(gpus, at),
            EventKind::GpusUnavailable { error, .. } => host.gpus_error = Some((keep_beginning(error), at)),
            EventKind::GpuProcesses { processes, .. } => {
                host.gpu_processes = processes.iter().take(MAX_GPU_PROCESSES).cloned().collect();
                host.gpu_processes_at = at;
            }
            EventKind::NvidiaSmi { text, error, .. } => {
                (host.nvidia_smi_output, host.nvidia_smi_error, host.nvidia_smi_at) =
                    (keep_first_bytes(text, MAX_NVIDIA_SMI_BYTES), keep_beginning(error), at);
            }
            EventKind::HostMetrics { metrics, .. } => {
                (host.host_metrics, host.host_metrics_at) = (metrics.clone(), at);
                host_trace::record(&mut host.machine_history, metrics, host.disk.map(|disk| [disk.free, disk.total]), at);
            }
            EventKind::DiskSpace { free, total, .. } => host.disk = Some(DiskSpace { free: *free, total: *total, at }),
            _ => {}
        }
    }
}
