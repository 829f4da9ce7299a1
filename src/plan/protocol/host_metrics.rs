//! What a host is asked all the time, beside the reader of its answers: GPUs, the processes on them, memory, processors, networks.
//!
//! The lines are described in `assets/host_metrics.sh`. Reads no clock: the time of an answer is handed in.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::gpu::{GpuProcess, GpuSample};
use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::nvidia_smi;
use crate::text::shell_quote::quote;

/// Seconds between two samples: longer with more hosts, since one laptop receives all samples. Processes are sampled every
/// third time.
fn sample_interval_secs(hosts: usize) -> u32 {
    match hosts {
        0..=16 => 2,
        17..=48 => 4,
        _ => 6,
    }
}

/// The most networks of a host.
const MAX_NETWORKS: usize = 64;
const MAX_LINE_BYTES: usize = 16 << 10;

/// What a network of a host moves.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NetSample {
    /// The interface, or `device/port` of InfiniBand.
    pub name: String,
    #[serde(alias = "received")]
    pub received_bytes_per_sec: f64,
    #[serde(alias = "sent")]
    pub sent_bytes_per_sec: f64,
    /// InfiniBand: the port's state and rate as the kernel reports them, `ACTIVE 400 Gb/sec (4X NDR)`. Empty for others.
    #[serde(default, alias = "port", skip_serializing_if = "String::is_empty")]
    pub infiniband_port_state: String,
}

/// What a host does besides its GPUs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostMetrics {
    /// Processes that want to run, the mean of a minute.
    #[serde(alias = "load")]
    pub load_average: Option<f32>,
    /// Percent of all processors.
    #[serde(alias = "cpu")]
    pub cpu_percent: Option<f32>,
    pub memory_total: u64,
    /// Memory that programs could still have, bytes.
    pub memory_available: u64,
    /// Its networks that have moved something, the busiest first.
    pub networks: Vec<NetSample>,
}

impl HostMetrics {
    /// Bytes per second in and out, of InfiniBand, or of other networks if there is none; `None`: nothing was moved.
    pub(crate) fn main_traffic(&self) -> Option<[f64; 2]> {
        let has_fabric = self.networks.iter().any(|net| !net.infiniband_port_state.is_empty());
        let shown = self.networks.iter().filter(|net| net.infiniband_port_state.is_empty() != has_fabric);
        shown.map(|net| [net.received_bytes_per_sec, net.sent_bytes_per_sec]).reduce(|a, b| [a[0] + b[0], a[1] + b[1]])
    }
}

/// The stream of the values of one of the hosts.
pub(crate) fn metrics_command(context: &HostContext, hosts: usize) -> RemoteCommand {
    RemoteCommand::from_script("stream GPU and host metrics", metrics_script(context, hosts), Duration::from_secs(20))
}

/// Runs on the host until its standard input ends.
pub(crate) fn metrics_script(context: &HostContext, hosts: usize) -> String {
    let mut script = format!(
        "{}run={} every={} fields={}\n",
        context.script_preamble(),
        quote(&context.run_id),
        sample_interval_secs(hosts),
        nvidia_smi::GPU_QUERY_FIELDS
    );
    let init = if context.in_container { "{ read -r init _ <\"$P/container.pid\"; } 2>/dev/null\n" } else { "" };
    script.push_str(&format!("init=\n{init}"));
    script.push_str(include_str!("../../../assets/host_metrics.sh"));
    script
}

/// What `nvidia-smi` prints on a host, for a person. One that hangs is given up after 15 s.
pub(crate) fn nvidia_smi_command() -> RemoteCommand {
    let script = "command -v nvidia-smi >/dev/null || { echo 'nvidia-smi is not on this host' >&2; exit 127; }\n\
                  command -v timeout >/dev/null && exec timeout 15 nvidia-smi </dev/null\n\
                  exec nvidia-smi </dev/null\n";
    RemoteCommand::from_script("read nvidia-smi", script, Duration::from_secs(20)).with_output_limit(64 << 10)
}

/// What a stream reported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MetricsEvent {
    /// A round of GPU values.
    Gpus(Vec<GpuSample>),
    GpuError(String),
    /// The processes on the GPUs.
    Processes(Vec<GpuProcess>),
    /// The rest of the host.
    Host(HostMetrics),
}

/// Counters of the machine at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct NetworkCounters {
    at: i64,
    received: f64,
    sent: f64,
}

/// Cuts a stream into news. Holds at most one round and one line.
#[derive(Debug, Default)]
pub(crate) struct MetricsReader {
    line: Vec<u8>,
    /// Whether the line is too long and is passed over.
    skipping_line: bool,
    gpu_fields: Vec<String>,
    gpus_per_round: usize,
    gpus: Vec<GpuSample>,
    processes: Option<Vec<GpuProcess>>,
    metrics: HostMetrics,
    cpu_ticks: Option<(f64, f64)>,
    network_counters: HashMap<String, NetworkCounters>,
}

impl MetricsReader {
    /// Takes bytes as they arrived, at a time in milliseconds of any clock that does not jump.
    pub(crate) fn push(&mut self, bytes: &[u8], at: i64) -> Vec<MetricsEvent> {
        let mut news = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            if self.line.len() + text.len() > MAX_LINE_BYTES {
                self.skipping_line = true;
                self.line.clear();
            }
            if !self.skipping_line {
                self.line.extend_from_slice(text);
            }
            if ends {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.skipping_line) {
                    self.parse_line(&String::from_utf8_lossy(&line), at, &mut news);
                }
            }
        }
        news
    }

    fn parse_line(&mut self, line: &str, at: i64, events: &mut Vec<MetricsEvent>) {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "Q" => {
                let (count, fields) = rest.split_once(' ').unwrap_or((rest, ""));
                self.gpus_per_round = count.parse().unwrap_or(0);
                self.gpu_fields = fields.split(',').map(str::to_owned).collect();
                self.gpus.clear();
            }
            "g" => self.parse_gpu(rest, events),
            "E" => {
                self.gpus.clear();
                events.push(MetricsEvent::GpuError(rest.to_owned()));
            }
            "a+" => self.processes = Some(Vec::new()),
            "a" => self.parse_process(rest),
            "a." => events.extend(self.processes.take().map(MetricsEvent::Processes)),
            "h" => self.parse_host(rest),
            "n" | "i" => self.parse_network(rest, kind == "i", at),
            "t" => {
                let mut metrics = std::mem::take(&mut self.metrics);
                metrics.networks.sort_by(|a, b| {
                    (b.received_bytes_per_sec + b.sent_bytes_per_sec)
                        .total_cmp(&(a.received_bytes_per_sec + a.sent_bytes_per_sec))
                        .then_with(|| a.name.cmp(&b.name))
                });
                events.push(MetricsEvent::Host(metrics));
            }
            _ => {}
        }
    }

    /// A round is complete when all GPUs have reported; if one is lost, when the next round begins.
    fn parse_gpu(&mut self, line: &str, events: &mut Vec<MetricsEvent>) {
        let fields: Vec<&str> = self.gpu_fields.iter().map(String::as_str).collect();
        let Some(gpu) = nvidia_smi::parse_gpu_sample(&fields, line) else { return };
        if self.gpus.last().is_some_and(|last| gpu.index <= last.index) {
            events.push(MetricsEvent::Gpus(std::mem::take(&mut self.gpus)));
        }
        self.gpus.push(gpu);
        if self.gpus.len() >= self.gpus_per_round {
            events.push(MetricsEvent::Gpus(std::mem::take(&mut self.gpus)));
        }
    }

    fn parse_process(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (Some(ours), Some(user), Some(rest)) = (words.next(), words.next(), words.next()) else { return };
        if let (Some(process), Some(processes)) = (nvidia_smi::parse_gpu_process(rest), &mut self.processes)
            && processes.len() < nvidia_smi::MAX_PROCESSES
        {
            let user = if user == "-" { String::new() } else { user.to_owned() };
            processes.push(GpuProcess { belongs_to_run: ours == "1", user, ..process });
        }
    }

    fn parse_host(&mut self, line: &str) {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<f64>().ok());
        let load = number();
        let mut bytes = || number().map_or(0, |kib| kib as u64 * 1024);
        let (total, available) = (bytes(), bytes());
        let ticks = number().zip(number());
        let cpu = ticks.zip(self.cpu_ticks).and_then(|((busy, all), (busy_before, all_before))| {
            (all > all_before).then(|| ((busy - busy_before) / (all - all_before) * 100.0).clamp(0.0, 100.0) as f32)
        });
        self.cpu_ticks = ticks;
        self.metrics = HostMetrics {
            load_average: load.map(|load| load as f32),
            cpu_percent: cpu,
            memory_total: total,
            memory_available: available,
            networks: Vec::new(),
        };
    }

    /// What has moved since the last look; a counter that went back was set to zero, and counts from there.
    fn parse_network(&mut self, line: &str, infiniband: bool, at: i64) {
        let mut words = line.splitn(if infiniband { 4 } else { 3 }, ' ');
        let (Some(name), Some(received), Some(sent)) = (words.next(), words.next(), words.next()) else { return };
        let unit = if infiniband { 4.0 } else { 1.0 };
        let (Ok(received), Ok(sent)) = (received.parse::<f64>(), sent.parse::<f64>()) else { return };
        let now = NetworkCounters { at, received: received * unit, sent: sent * unit };
        if self.network_counters.len() >= MAX_NETWORKS && !self.network_counters.contains_key(name) {
            return;
        }
        let Some(before) = self.network_counters.insert(name.to_owned(), now) else { return };
        let seconds = (now.at - before.at) as f64 / 1000.0;
        if seconds <= 0.0 || self.metrics.networks.len() >= MAX_NETWORKS {
            return;
        }
        let rate = |now: f64, before: f64| if now >= before { (now - before) / seconds } else { now / seconds };
        let (received, sent) = (rate(now.received, before.received), rate(now.sent, before.sent));
        let port = words.next().unwrap_or_default().to_owned();
        if now.received + now.sent > 0.0 || infiniband {
            self.metrics.networks.push(NetSample {
                name: name.to_owned(),
                received_bytes_per_sec: received,
                sent_bytes_per_sec: sent,
                infiniband_port_state: port,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE_STREAM: &str = "Q 2 index,utilization.gpu\nh 1.5 1000 250 100 1000\nn eth0 1000 500\ni mlx5_0/1 100 0 ACTIVE 400 Gb/sec (4X NDR)\nt\n\
        g 0, 87\na+\na 1 root 7, GPU-a, 100, python3 -c 'a, b'\ng 1, 12\na 0 li 9, GPU-b, [N/A], game\na.\nh 0.5 1000 500 200 1100\n\
        n eth0 3000 500\ni mlx5_0/1 600 250 ACTIVE 400 Gb/sec (4X NDR)\nt\nE No devices were found\n";

    fn read_in_chunks(cuts: &[usize]) -> Vec<MetricsEvent> {
        let (mut reader, mut news) = (MetricsReader::default(), Vec::new());
        // Both rounds of counters are two seconds apart, however the stream is cut.
        let second = SAMPLE_STREAM.find("\nt\n").expect("a first round") + 3;
        let mut done = 0;
        for cut in cuts.iter().copied().chain([SAMPLE_STREAM.len()]) {
            let (from, to) = (done, (done + cut).min(SAMPLE_STREAM.len()));
            let middle = second.clamp(from, to);
            news.extend(reader.push(&SAMPLE_STREAM.as_bytes()[from..middle], 0));
            news.extend(reader.push(&SAMPLE_STREAM.as_bytes()[middle..to], 2000));
            done = to;
        }
        news
    }

    #[test]
    fn interleaved_lines_become_separate_events() {
        let news = read_in_chunks(&[]);
        let [
            MetricsEvent::Host(first),
            MetricsEvent::Gpus(gpus),
            MetricsEvent::Processes(processes),
            MetricsEvent::Host(second),
            MetricsEvent::GpuError(why),
        ] = &news[..]
        else {
            panic!("{news:?}")
        };
        assert!(first.cpu_percent.is_none() && first.networks.is_empty(), "a rate needs two looks");
        assert_eq!(gpus.iter().map(|g| (g.index, g.utilization)).collect::<Vec<_>>(), [(0, Some(87.0)), (1, Some(12.0))]);
        let seen: Vec<_> = processes.iter().map(|p| (p.pid, p.belongs_to_run, p.user.as_str(), p.memory, p.name.as_str())).collect();
        assert_eq!(seen, [(7, true, "root", Some(100.0), "python3 -c 'a, b'"), (9, false, "li", None, "game")]);
        assert_eq!(
            (second.load_average, second.cpu_percent, second.memory_total, second.memory_available),
            (Some(0.5), Some(100.0), 1_024_000, 512_000)
        );
        let rates: Vec<_> = second
            .networks
            .iter()
            .map(|n| (n.name.as_str(), n.received_bytes_per_sec, n.sent_bytes_per_sec, n.infiniband_port_state.as_str()))
            .collect();
        assert_eq!(rates, [("mlx5_0/1", 1000.0, 500.0, "ACTIVE 400 Gb/sec (4X NDR)"), ("eth0", 1000.0, 0.0, "")]);
        assert_eq!(why, "No devices were found");
    }

    #[test]
    fn missing_gpu_does_not_delay_the_round() {
        let mut reader = MetricsReader::default();
        let news = reader.push(b"Q 3 index\ng 0\ng 1\ng 2\ng 0\ng 2\ng 0\n", 0);
        let rounds: Vec<Vec<u32>> = news
            .iter()
            .map(|n| if let MetricsEvent::Gpus(gpus) = n { gpus.iter().map(|g| g.index).collect() } else { Vec::new() })
            .collect();
        assert_eq!(rounds, [vec![0, 1, 2], vec![0, 2]]);
    }

    #[test]
    fn overlong_line_is_skipped() {
        let mut reader = MetricsReader::default();
        for _ in 0..100 {
            assert!(reader.push(&[b'x'; 1000], 0).is_empty() && reader.line.len() <= MAX_LINE_BYTES);
        }
        assert_eq!(reader.push(b"\nE late\n", 0), [MetricsEvent::GpuError("late".to_owned())]);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_change_events(cuts in prop::collection::vec(0..60_usize, 0..20)) {
            prop_assert_eq!(read_in_chunks(&cuts), read_in_chunks(&[]));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in "[Qganhit+. ]{0,3}") {
            let mut reader = MetricsReader::default();
            reader.push(b"Q 2 index,name\na+\n", 0);
            reader.push(kind.as_bytes(), 1);
            reader.push(&bytes, 2);
            reader.push(b"\n", 3);
        }
    }
}
