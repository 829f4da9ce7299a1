//! The last values of a host's machine, for graphs.

use std::collections::VecDeque;

use crate::event::{HostMetrics, UnixMillis};

/// How many rounds of values of a host are kept.
pub(crate) const MAX_TRACE_POINTS: usize = 120;

/// One look at a machine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostTracePoint {
    pub at: UnixMillis,
    /// How busy its processors are, percent.
    pub cpu: Option<f32>,
    /// Memory in use, percent.
    pub memory: Option<f32>,
    /// Free space under the run directory, percent.
    pub disk_free: Option<f32>,
    /// Bytes per second in and out, of InfiniBand, or of other networks if there is none.
    pub network: Option<f32>,
}

impl HostTracePoint {
    fn new(metrics: &HostMetrics, disk: Option<[u64; 2]>, at: UnixMillis) -> HostTracePoint {
        let share = |part: u64, total: u64| (total > 0).then(|| part as f32 / total as f32 * 100.0);
        HostTracePoint {
            at,
            cpu: metrics.cpu_percent,
            memory: share(metrics.memory_total.saturating_sub(metrics.memory_available), metrics.memory_total),
            disk_free: disk.and_then(|[free, total]| share(free, total)),
            network: metrics.main_traffic().map(|[received, sent]| (received + sent) as f32),
        }
    }
}

/// Adds a look, and drops the oldest one where there are enough. `disk`: free and total bytes.
pub(super) fn record(trace: &mut VecDeque<HostTracePoint>, metrics: &HostMetrics, disk: Option<[u64; 2]>, at: UnixMillis) {
    if trace.len() >= MAX_TRACE_POINTS {
        trace.pop_front();
    }
    trace.push_back(HostTracePoint::new(metrics, disk, at));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NetSample;

    fn network(name: &str, port_state: &str, rate: f64) -> NetSample {
        NetSample {
            name: name.to_owned(),
            received_bytes_per_sec: rate,
            sent_bytes_per_sec: rate,
            infiniband_port_state: port_state.to_owned(),
        }
    }

    #[test]
    fn trace_is_bounded_and_prefers_infiniband() {
        let metrics = HostMetrics {
            cpu_percent: Some(12.0),
            memory_total: 100,
            memory_available: 25,
            networks: vec![network("eth0", "", 900.0), network("mlx5_0 1", "ACTIVE", 4.0)],
            ..HostMetrics::default()
        };
        let mut trace = VecDeque::new();
        for at in 0..=MAX_TRACE_POINTS {
            record(&mut trace, &metrics, Some([40, 100]), at as UnixMillis);
        }
        let newest = HostTracePoint {
            at: MAX_TRACE_POINTS as UnixMillis,
            cpu: Some(12.0),
            memory: Some(75.0),
            disk_free: Some(40.0),
            network: Some(8.0),
        };
        assert_eq!((trace.len(), trace[0].at, trace.back()), (MAX_TRACE_POINTS, 1, Some(&newest)));
        record(&mut trace, &HostMetrics::default(), None, 500);
        assert_eq!(trace.back(), Some(&HostTracePoint { at: 500, ..HostTracePoint::default() }), "unknown is no zero");
    }
}
