//! What the login node says of the cluster: the reader of the answer of `assets/slurm/preflight.sh`. What does not pass the grammar is dropped.

use super::job_notes::short;
use crate::inventory::parse_time_limit;

/// What a submission needs of a cluster, as its login node has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterReport {
    /// Programs of SLURM that a login shell does not find.
    pub(crate) absent: Vec<String>,
    /// `22.05.8`.
    pub(crate) version: Option<String>,
    /// `None`: sinfo gave no answer.
    pub(crate) partitions: Option<Vec<PartitionNodes>>,
    /// Whether sinfo may have printed more than was read.
    pub(crate) is_cut: bool,
    /// The deepest directory of the run directory's path that exists, and whether it can be written.
    pub(crate) run_dir: Option<(String, bool)>,
    /// The type of its file system, as `stat -f` names it.
    pub(crate) filesystem: String,
    pub(crate) is_image_readable: Option<bool>,
}

/// Equal nodes of a partition. A number that is `None` is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionNodes {
    pub(crate) partition: String,
    pub(crate) is_default: bool,
    /// `up`, `down`, `drain` or `inact`.
    pub(crate) availability: String,
    /// Seconds; `None`: no limit.
    pub(crate) time_limit: Option<u64>,
    pub(crate) nodes: Option<u32>,
    pub(crate) cpus: Option<u32>,
    pub(crate) gpus: Option<u32>,
}

/// The most lines of sinfo that are believed: `lines` in `assets/slurm/login.sh` cuts there.
const MAX_PARTITION_LINES: usize = 400;

impl ClusterReport {
    pub(crate) fn parse(answer: &str) -> ClusterReport {
        let mut report = ClusterReport::default();
        let mut section = "";
        let mut partition_lines = 0;
        for line in answer.lines() {
            if let Some(text) = line.strip_prefix(' ') {
                partition_lines += usize::from(section == "partitions");
                report.apply_line(section, text);
                continue;
            }
            let Some((label, value)) = line.strip_prefix('@').and_then(|head| head.split_once(' ')) else { continue };
            section = if value == "0" { label } else { "" };
            match label {
                "absent" if report.absent.len() < 16 => report.absent.push(short(value)),
                "partitions" if value == "0" => report.partitions = Some(Vec::new()),
                "writable" | "unwritable" => report.run_dir = Some((short(value), label == "writable")),
                "filesystem" => report.filesystem = short(value),
                "image" => report.is_image_readable = Some(value == "readable"),
                _ => {}
            }
        }
        report.is_cut = partition_lines >= MAX_PARTITION_LINES;
        report
    }

    fn apply_line(&mut self, section: &str, line: &str) {
        match (section, &mut self.partitions) {
            // `slurm 22.05.8`, and `slurm-wlm 22.05.8` on Debian.
            ("version", _) if self.version.is_none() => {
                let version = line.split_whitespace().last().filter(|_| line.starts_with("slurm"));
                let is_version = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit()) && text.len() < 40;
                self.version = version.filter(is_version).map(str::to_owned);
            }
            ("partitions", Some(list)) if list.len() < MAX_PARTITION_LINES => list.extend(PartitionNodes::parse(line)),
            _ => {}
        }
    }
}

impl PartitionNodes {
    /// `<partition>[*]|<availability>|<time limit>|<nodes>|<CPUs>[+]|<generic resources>`.
    fn parse(line: &str) -> Option<PartitionNodes> {
        let fields: Vec<&str> = line.splitn(6, '|').map(str::trim).collect();
        let [name, availability, limit, nodes, cpus, resources] = fields[..] else { return None };
        Some(PartitionNodes {
            partition: short(name.trim_end_matches('*')),
            is_default: name.ends_with('*'),
            availability: short(availability),
            time_limit: parse_time_limit(limit).filter(|seconds| *seconds > 0),
            nodes: parse_count(nodes),
            cpus: parse_count(cpus),
            gpus: count_gpus(resources),
        })
    }
}

/// `96`, `2K` for 2048. `96+` is a minimum: unknown.
fn parse_count(text: &str) -> Option<u32> {
    match text.strip_suffix('K') {
        Some(thousands) => thousands.parse::<u32>().ok()?.checked_mul(1024),
        None => text.parse().ok(),
    }
}

/// The GPUs of `gpu:h200:4(S:0-1),gpu:a100:2,shard:8`.
fn count_gpus(resources: &str) -> Option<u32> {
    // A comma in brackets separates sockets.
    let mut depth = 0_u32;
    let plain: String = resources
        .chars()
        .filter(|c| {
            depth = match c {
                '(' => depth + 1,
                ')' => depth.saturating_sub(1),
                _ => depth,
            };
            depth == 0 && *c != ')'
        })
        .collect();
    let gpus = plain.split(',').filter(|word| *word == "gpu" || word.starts_with("gpu:"));
    // A name without a count is one GPU.
    let mut counts =
        gpus.map(|word| word.rsplit(':').next().and_then(|count| if count == "gpu" { Some(1) } else { count.parse::<u32>().ok() }));
    counts.try_fold(0, |sum: u32, count| Some(sum.saturating_add(count?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_read_and_noise_is_dropped() {
        let answer = "@root /home/u/run\n@clock 1\n@absent srun\n@version 0\n noise\n slurm 22.05.8\n@partitions 0\n \
                      gpu*|up|1:00:00|2|8|gpu:2\n big|down|infinite|16|96+|gpu:h200:4(S:0-1,3),gpu:a100:2\n nonsense\n\
                      @writable /home/u\n@filesystem nfs\n@image unreadable\n";
        let report = ClusterReport::parse(answer);
        assert_eq!((report.absent.as_slice(), report.version.as_deref()), (["srun".to_owned()].as_slice(), Some("22.05.8")));
        assert_eq!((report.run_dir, report.filesystem.as_str()), (Some(("/home/u".to_owned(), true)), "nfs"));
        assert_eq!(report.is_image_readable, Some(false));
        let [gpu, big] = &report.partitions.expect("two partitions")[..] else { panic!("two partitions") };
        assert_eq!(
            (gpu.partition.as_str(), gpu.is_default, gpu.time_limit, gpu.nodes, gpu.cpus, gpu.gpus),
            ("gpu", true, Some(3600), Some(2), Some(8), Some(2))
        );
        assert_eq!((big.availability.as_str(), big.is_default, big.time_limit, big.cpus, big.gpus), ("down", false, None, None, Some(6)));
        let silent =
            ClusterReport::parse("@partitions 1\n slurm_load_partitions: Unable to contact slurm controller\n@version 1\n slurm 9\n");
        assert_eq!(silent, ClusterReport::default());
    }

    #[test]
    fn gpus_are_counted_in_any_spelling() {
        for (text, count) in
            [("(null)", 0), ("gpu:8", 8), ("gpu:h200:4", 4), ("gpu:8(S:0-1)", 8), ("shard:4,gpu:1", 1), ("gpu:(null):3", 3), ("gpu", 1)]
        {
            assert_eq!(count_gpus(text), Some(count), "{text}");
        }
        assert_eq!(count_gpus("gpu:h200"), None, "a type without a count");
    }

    #[test]
    fn answer_of_a_cluster_with_mixed_nodes_is_read() {
        let answer = "@version 0\n slurm-wlm 23.11.4\n@partitions 0\n sinfo: error: noise\n \
                      normal*|up|2-00:00:00|2K|128|(null)\n normal*|up|2-00:00:00|12|64+|gpu:a100:4(S:0-3)\n \
                      odd|up|n/a|1.5K|?|gpu:h100:8(S:0-1),lustre:1\n";
        let report = ClusterReport::parse(answer);
        assert_eq!((report.version.as_deref(), report.is_cut), (Some("23.11.4"), false));
        let read = |it: &PartitionNodes| (it.partition.clone(), it.time_limit, it.nodes, it.cpus, it.gpus);
        let read: Vec<_> = report.partitions.iter().flatten().map(read).collect();
        let expected = [
            ("normal".to_owned(), Some(172_800), Some(2048), Some(128), Some(0)),
            ("normal".to_owned(), Some(172_800), Some(12), None, Some(4)),
            ("odd".to_owned(), None, None, None, Some(8)),
        ];
        assert_eq!(read, expected, "a number that does not parse is unknown, its partition is there");
        let many = format!("@partitions 0\n{}", " p|up|infinite|1|1|(null)\n".repeat(MAX_PARTITION_LINES));
        assert!(ClusterReport::parse(&many).is_cut);
    }
}
