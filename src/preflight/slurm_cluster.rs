//! Preflight of a job on SLURM: what the login node says of the cluster, against what the job asks for.

use super::CheckResult;
use crate::inventory::{SlurmContainer, SlurmSettings};
use crate::model::level::Level;
use crate::plan::slurm::cluster_report::{ClusterReport, PartitionNodes};
use crate::plan::slurm::header::requests_gpus_by_args;

/// The versions that were tried: `docs/slurm.md` says how.
const TRIED_VERSIONS: [&str; 1] = ["22.05"];

/// All findings, in the order in which a person mends them.
pub(crate) fn judge_cluster(report: &ClusterReport, settings: &SlurmSettings) -> Vec<CheckResult> {
    let login = settings.login.as_ref().map_or("the login node", |host| host.name.as_str());
    let mut findings: Vec<CheckResult> = report
        .absent
        .iter()
        .map(|program| {
            let hint = "set slurm.login to a node where sbatch works after a login, or install SLURM's client programs there";
            CheckResult::fail(format!("{login}: {program} is not on the PATH of a login shell"), hint)
        })
        .collect();
    findings.extend(judge_version(report, login));
    match &report.partitions {
        Some(_) if report.is_cut => {
            let hint = "partition, limits and GPUs were not checked; sbatch decides";
            findings.push(CheckResult::warn(format!("{login}: sinfo says more than is read"), hint));
        }
        Some(partitions) if !partitions.is_empty() || settings.partition.is_some() => {
            findings.extend(judge_partitions(partitions, settings));
        }
        _ if report.absent.is_empty() => {
            let hint = "partition, limits and GPUs were not checked; `sinfo` on the login node says why";
            let what = settings
                .partition
                .as_ref()
                .map_or_else(|| "sinfo gave no answer".to_owned(), |partition| format!("sinfo said nothing about partition {partition}"));
            findings.push(CheckResult::warn(format!("{login}: {what}"), hint));
        }
        _ => {}
    }
    findings.extend(judge_files(report, settings, login));
    findings
}

fn judge_version(report: &ClusterReport, login: &str) -> Option<CheckResult> {
    let version = report.version.as_deref()?;
    if TRIED_VERSIONS.iter().any(|tried| version.strip_prefix(tried).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))) {
        return None;
    }
    let hint = "try a short job first: --set slurm.time=5";
    Some(CheckResult::warn(format!("{login}: SLURM {version} was not tried, only {}", TRIED_VERSIONS.join(", ")), hint))
}

/// The partitions that the job may take, against its size and its time. An error is only what holds of a single partition that the inventory
/// names: of several, or of a default that a plugin of the cluster may replace, sbatch decides.
fn judge_partitions(partitions: &[PartitionNodes], settings: &SlurmSettings) -> Vec<CheckResult> {
    let Some(asked) = &settings.partition else { return as_warnings(judge_default(partitions, settings)) };
    let mut findings = Vec::new();
    for name in asked.split(',') {
        let nodes: Vec<&PartitionNodes> = partitions.iter().filter(|nodes| nodes.partition == name).collect();
        if nodes.is_empty() {
            let hint = "`sinfo -a -o '%P %l'` on the login node lists the partitions";
            findings.push(CheckResult::warn(format!("slurm.partition: sinfo shows no partition {name}"), hint));
        } else {
            findings.extend(judge_partition(name, &nodes, settings));
        }
    }
    let on_other_cluster = settings.args.iter().any(|arg| arg.starts_with("--clusters") || arg.starts_with("-M"));
    if asked.contains(',') || on_other_cluster {
        return as_warnings(findings);
    }
    for finding in findings.iter_mut().filter(|finding| finding.level == Level::Fail) {
        finding.hint.push_str("; --preflight off leaves this check out");
    }
    findings
}

fn as_warnings(mut findings: Vec<CheckResult>) -> Vec<CheckResult> {
    findings.iter_mut().for_each(|finding| finding.level = Level::Warn);
    findings
}

fn judge_default(partitions: &[PartitionNodes], settings: &SlurmSettings) -> Vec<CheckResult> {
    let default: Vec<&PartitionNodes> = partitions.iter().filter(|nodes| nodes.is_default).collect();
    if let Some(first) = default.first() {
        return judge_partition(&first.partition, &default, settings);
    }
    let mut names: Vec<&str> = partitions.iter().map(|nodes| nodes.partition.as_str()).filter(|name| !name.is_empty()).collect();
    names.dedup();
    names.truncate(12);
    let message = "slurm.partition is missing, and sinfo shows no default partition";
    vec![CheckResult::warn(message, format!("set slurm.partition to one of: {}", names.join(", ")))]
}

fn judge_partition(name: &str, nodes: &[&PartitionNodes], settings: &SlurmSettings) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    if let Some(state) = nodes.first().map(|first| first.availability.as_str()).filter(|state| *state != "up") {
        let hint = "the job would wait until an administrator opens it: take another slurm.partition";
        findings.push(CheckResult::warn(format!("partition {name} is {state}"), hint));
    }
    findings.extend(judge_time(name, nodes, settings));
    // With a number that is unknown there is no sum.
    let counted: Option<Vec<(u32, &PartitionNodes)>> = nodes.iter().map(|some| Some((some.nodes?, *some))).collect();
    if let Some(counted) = counted {
        findings.extend(judge_size(name, &counted, settings));
    }
    findings
}

/// The numbers of nodes, GPUs and CPUs. Nodes whose number is unknown fit.
fn judge_size(name: &str, nodes: &[(u32, &PartitionNodes)], settings: &SlurmSettings) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    let all = nodes.iter().fold(0, |sum: u32, (count, _)| sum.saturating_add(*count));
    if settings.nodes > all {
        let message = format!("slurm.nodes: {}, but partition {name} has {all}", settings.nodes);
        return vec![CheckResult::fail(message, format!("lower it to at most {all}, or take another slurm.partition"))];
    }
    let gpus_of = |some: &PartitionNodes| some.gpus;
    let cpus_of = |some: &PartitionNodes| some.cpus;
    let gpus = Some(settings.gpus_per_node).filter(|_| !requests_gpus_by_args(settings));
    type Count = fn(&PartitionNodes) -> Option<u32>;
    let needed: [(&str, &str, Option<u32>, Count); 2] =
        [("gpus_per_node", "GPUs", gpus, gpus_of), ("cpus_per_task", "CPUs", settings.cpus_per_task, cpus_of)];
    for (key, what, wanted, count_of) in needed {
        let Some(wanted) = wanted else { continue };
        let fits = |some: &PartitionNodes| count_of(some).is_none_or(|count| count >= wanted);
        let fitting = nodes.iter().filter(|(_, some)| fits(some)).fold(0, |sum: u32, (count, _)| sum.saturating_add(*count));
        if fitting >= settings.nodes {
            continue;
        }
        let message =
            format!("slurm.{key}: {wanted}, but {fitting} of the {} nodes needed in partition {name} have so many {what}", settings.nodes);
        let most = nodes.iter().filter_map(|(_, some)| count_of(some)).max().unwrap_or_default();
        let hint = format!("its nodes have at most {most}: lower slurm.{key}, or take another slurm.partition");
        // How CPUs are counted (cores, threads) is the cluster's own affair.
        let finding = if key == "gpus_per_node" { CheckResult::fail(message, hint) } else { CheckResult::warn(message, hint) };
        findings.push(finding);
    }
    findings
}

/// A job beyond its partition's limit would wait for ever. A QOS may allow it.
fn judge_time(name: &str, nodes: &[&PartitionNodes], settings: &SlurmSettings) -> Option<CheckResult> {
    let (text, seconds) = settings.time.as_ref()?;
    let limit = nodes.first()?.time_limit?;
    if *seconds > 0 && *seconds <= limit {
        return None;
    }
    let message = format!("slurm.time: {text} is more than partition {name} allows");
    let hint = format!("write at most \"{}\" (minutes), or take another slurm.partition", limit / 60);
    let has_qos = settings.args.iter().any(|arg| arg.starts_with("--qos") || arg.starts_with("-q"));
    Some(if has_qos { CheckResult::warn(message, hint) } else { CheckResult::fail(message, hint) })
}

fn judge_files(report: &ClusterReport, settings: &SlurmSettings, login: &str) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    if let Some((path, false)) = &report.run_dir {
        let hint = "set run_dir to a directory of yours that all nodes share, for example below your home";
        findings.push(CheckResult::fail(format!("{login}: {path} cannot be written"), hint));
    }
    if matches!(report.filesystem.as_str(), "tmpfs" | "ramfs") {
        let path = report.run_dir.as_ref().map_or("run_dir", |(path, _)| path.as_str());
        let hint = "the nodes cannot see it: set run_dir to a directory that all nodes share";
        findings.push(CheckResult::fail(format!("{login}: {path} is in memory ({})", report.filesystem), hint));
    }
    if let (Some(false), Some(image)) = (report.is_image_readable, &settings.image)
        && matches!(settings.container, SlurmContainer::Pyxis | SlurmContainer::Apptainer)
    {
        let hint = "set slurm.image to a file of the shared file system; where only the nodes have it, use --preflight off";
        findings.push(CheckResult::fail(format!("{login}: {image} cannot be read"), hint));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SlurmSettings {
        SlurmSettings {
            login: None,
            nodes: 2,
            gpus_per_node: 2,
            partition: Some("gpu".to_owned()),
            time: Some(("10".to_owned(), 600)),
            cpus_per_task: Some(4),
            container: SlurmContainer::None,
            image: None,
            secrets_in_file: false,
            args: Vec::new(),
            requeue: false,
        }
    }

    fn cluster() -> ClusterReport {
        let nodes = PartitionNodes {
            partition: "gpu".to_owned(),
            is_default: true,
            availability: "up".to_owned(),
            time_limit: Some(3600),
            nodes: Some(2),
            cpus: Some(8),
            gpus: Some(2),
        };
        let small = PartitionNodes {
            partition: "cpu".to_owned(),
            is_default: false,
            gpus: Some(0),
            nodes: Some(1),
            time_limit: None,
            ..nodes.clone()
        };
        ClusterReport {
            version: Some("22.05.8".to_owned()),
            partitions: Some(vec![nodes, small]),
            run_dir: Some(("/home/u".to_owned(), true)),
            filesystem: "nfs".to_owned(),
            ..ClusterReport::default()
        }
    }

    /// `error: message`, or `warning: message`, a finding each.
    fn judged(change: impl FnOnce(&mut ClusterReport, &mut SlurmSettings)) -> Vec<String> {
        let (mut cluster, mut settings) = (cluster(), settings());
        change(&mut cluster, &mut settings);
        let findings = judge_cluster(&cluster, &settings);
        assert!(findings.iter().all(|finding| !finding.hint.is_empty()), "each has a next step: {findings:?}");
        findings.into_iter().map(|it| format!("{}: {}", if it.level == Level::Fail { "error" } else { "warning" }, it.message)).collect()
    }

    #[test]
    fn fitting_cluster_has_no_findings() {
        assert_eq!(judged(|_, _| {}), [""; 0]);
        assert_eq!(judged(|_, settings| settings.partition = None), [""; 0], "its default partition");
    }

    #[test]
    fn each_mismatch_is_named_once() {
        let one = |change: fn(&mut ClusterReport, &mut SlurmSettings), expected: &str| assert_eq!(judged(change), [expected], "{expected}");
        one(|_, s| s.partition = Some("gpus".to_owned()), "warning: slurm.partition: sinfo shows no partition gpus");
        one(|_, s| s.time = Some(("2:00:00".to_owned(), 7200)), "error: slurm.time: 2:00:00 is more than partition gpu allows");
        one(|_, s| s.time = Some(("UNLIMITED".to_owned(), 0)), "error: slurm.time: UNLIMITED is more than partition gpu allows");
        one(|_, s| s.nodes = 3, "error: slurm.nodes: 3, but partition gpu has 2");
        one(|_, s| s.gpus_per_node = 4, "error: slurm.gpus_per_node: 4, but 0 of the 2 nodes needed in partition gpu have so many GPUs");
        one(
            |_, s| s.cpus_per_task = Some(9),
            "warning: slurm.cpus_per_task: 9, but 0 of the 2 nodes needed in partition gpu have so many CPUs",
        );
        one(|c, _| c.absent = vec!["srun".to_owned()], "error: the login node: srun is not on the PATH of a login shell");
        one(|c, _| c.version = Some("23.11.4".to_owned()), "warning: the login node: SLURM 23.11.4 was not tried, only 22.05");
        one(|c, _| c.version = Some("22.055".to_owned()), "warning: the login node: SLURM 22.055 was not tried, only 22.05");
        one(|c, _| c.partitions = None, "warning: the login node: sinfo said nothing about partition gpu");
        one(|c, _| c.run_dir = Some(("/opt".to_owned(), false)), "error: the login node: /opt cannot be written");
        one(|c, _| c.filesystem = "tmpfs".to_owned(), "error: the login node: /home/u is in memory (tmpfs)");
        let no_default = |c: &mut ClusterReport, s: &mut SlurmSettings| {
            c.partitions.iter_mut().flatten().for_each(|it| it.is_default = false);
            s.partition = None;
        };
        one(no_default, "warning: slurm.partition is missing, and sinfo shows no default partition");
        one(|c, s| (c.partitions, s.partition) = (Some(Vec::new()), None), "warning: the login node: sinfo gave no answer");
        one(|c, s| (c.is_cut, s.nodes) = (true, 9), "warning: the login node: sinfo says more than is read");
    }

    #[test]
    fn errors_are_of_a_single_named_partition() {
        let large = |partition: Option<&str>, args: &[&str]| {
            judged(|_, s| {
                (s.nodes, s.partition) = (3, partition.map(str::to_owned));
                s.args = args.iter().map(|arg| (*arg).to_owned()).collect();
            })
        };
        assert_eq!(large(Some("gpu"), &[]), ["error: slurm.nodes: 3, but partition gpu has 2"]);
        assert_eq!(large(None, &[]), ["warning: slurm.nodes: 3, but partition gpu has 2"], "a plugin may choose another");
        assert_eq!(large(Some("gpu"), &["--clusters=b"]), ["warning: slurm.nodes: 3, but partition gpu has 2"]);
        let several = ["warning: slurm.nodes: 3, but partition gpu has 2", "warning: slurm.nodes: 3, but partition cpu has 1"];
        assert_eq!(large(Some("gpu,cpu"), &[]), several, "sbatch takes the one that fits");
        let findings = judge_cluster(&cluster(), &SlurmSettings { nodes: 3, ..settings() });
        assert!(findings[0].hint.contains("--preflight off"), "{}", findings[0].hint);
    }

    #[test]
    fn unknown_numbers_fit() {
        let unknown = |change: fn(&mut PartitionNodes)| {
            judged(|c, s| {
                (s.nodes, s.gpus_per_node, s.cpus_per_task) = (2, 8, Some(64));
                let nodes = c.partitions.iter_mut().flatten();
                nodes.for_each(|it| (it.nodes, it.gpus, it.cpus) = (Some(2), Some(8), Some(64)));
                c.partitions.iter_mut().flatten().for_each(change);
            })
        };
        assert_eq!(unknown(|it| it.nodes = None), [""; 0]);
        assert_eq!(unknown(|it| it.gpus = None), [""; 0]);
        assert_eq!(unknown(|it| it.cpus = None), [""; 0]);
        assert_eq!(unknown(|it| it.gpus = Some(7)).len(), 1);
    }

    #[test]
    fn options_by_hand_and_a_qos_are_believed() {
        let by_hand = |_: &mut ClusterReport, s: &mut SlurmSettings| {
            (s.gpus_per_node, s.args) = (8, vec!["--gres=gpu:8".to_owned()]);
        };
        assert_eq!(judged(by_hand), [""; 0]);
        let qos = |_: &mut ClusterReport, s: &mut SlurmSettings| {
            (s.time, s.args) = (Some(("2:00:00".to_owned(), 7200)), vec!["--qos=long".to_owned()]);
        };
        assert_eq!(judged(qos), ["warning: slurm.time: 2:00:00 is more than partition gpu allows"]);
        let image = |c: &mut ClusterReport, s: &mut SlurmSettings| {
            (s.container, s.image, c.is_image_readable) = (SlurmContainer::Apptainer, Some("/x.sif".to_owned()), Some(false));
        };
        assert_eq!(judged(image), ["error: the login node: /x.sif cannot be read"]);
    }
}
