//! The block `slurm`: how the same job is asked of a SLURM cluster.

use super::errors::InventoryErrors;
use super::eval::{Evaluator, NPROC_LIMIT};
use super::problem::{Verdict, require};
use super::yaml_tree::{YamlNode, shorten};
use super::{InventoryHost, hosts, name_syntax};

/// The most nodes of a job.
const NODES_LIMIT: u32 = 4096;
const CPUS_LIMIT: u32 = 4096;
/// sbatch reads a line of at most 8 KiB.
const ARG_LENGTH_LIMIT: usize = 1024;

/// `slurm`, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmSettings {
    /// The login node; only commands that reach the cluster need it.
    pub login: Option<InventoryHost>,
    pub nodes: u32,
    pub gpus_per_node: u32,
    pub partition: Option<String>,
    /// As sbatch takes it, with its seconds; 0 seconds: no limit.
    pub time: Option<(String, u64)>,
    pub cpus_per_task: Option<u32>,
    pub container: SlurmContainer,
    /// What pyxis and apptainer run instead of `container.image`.
    pub image: Option<String>,
    /// Whether secrets may wait in a file.
    pub secrets_in_file: bool,
    /// Further options of sbatch, one each.
    pub args: Vec<String>,
    pub requeue: bool,
}

/// `slurm.container`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlurmContainer {
    /// The ranks run on the nodes themselves.
    #[default]
    None,
    Docker,
    Pyxis,
    Apptainer,
}

impl SlurmContainer {
    pub const ALL: [SlurmContainer; 4] = [SlurmContainer::None, SlurmContainer::Docker, SlurmContainer::Pyxis, SlurmContainer::Apptainer];

    pub fn as_str(self) -> &'static str {
        match self {
            SlurmContainer::None => "none",
            SlurmContainer::Docker => "docker",
            SlurmContainer::Pyxis => "pyxis",
            SlurmContainer::Apptainer => "apptainer",
        }
    }
}

/// The block; `None` where there is none. `host_count`: what `nodes` is where it is left out.
pub(super) fn parse_slurm(evaluator: &Evaluator<'_>, host_count: usize, errors: &mut InventoryErrors) -> Option<SlurmSettings> {
    let tree = evaluator.inputs().tree;
    let block = tree.get_map("slurm")?;
    let mut reader = SlurmReader { evaluator, block, errors };
    let container = reader.container(tree);
    let image = reader.text("image", validate_image);
    reader.check_image(container, image.as_deref(), tree);
    let time = reader.text("time", |text| parse_time_limit(text).map(drop).ok_or_else(|| time_problem(text)));
    Some(SlurmSettings {
        login: reader.login(),
        nodes: reader.nodes(host_count),
        gpus_per_node: reader.gpus_per_node(tree),
        partition: reader.text("partition", validate_partition),
        time: time.and_then(|text| parse_time_limit(&text).map(|seconds| (text, seconds))),
        cpus_per_task: reader.number("cpus_per_task", 1, CPUS_LIMIT),
        container,
        image,
        secrets_in_file: reader.secrets_in_file(),
        args: reader.args(),
        requeue: reader.value("requeue").and_then(|node| reader.errors.read_bool(&node)).unwrap_or(false),
    })
}

struct SlurmReader<'a, 'e> {
    evaluator: &'a Evaluator<'a>,
    block: &'a YamlNode,
    errors: &'e mut InventoryErrors,
}

impl SlurmReader<'_, '_> {
    fn value(&mut self, key: &str) -> Option<YamlNode> {
        let node = self.block.get(key)?;
        Some(hosts::evaluate_before_connect(self.evaluator, node, 0, self.errors))
    }

    fn text(&mut self, key: &str, valid: impl Fn(&str) -> Verdict) -> Option<String> {
        let node = self.value(key)?;
        self.errors.validated_text(&node, valid)
    }

    /// With the inventory's `ssh`.
    fn login(&mut self) -> Option<InventoryHost> {
        let text = self.text("login", validate_login)?;
        hosts::parse_login_host(self.evaluator, &text, self.errors)
    }

    fn number(&mut self, key: &str, min: u32, max: u32) -> Option<u32> {
        let node = self.value(key)?;
        self.errors.read_number(&node, min, max)
    }

    fn missing(&mut self, key: &str, hint: &str) {
        self.errors.report(&self.block.location.child(key), format!("`{key}` is missing"), hint);
    }

    fn nodes(&mut self, host_count: usize) -> u32 {
        if self.block.get("nodes").is_none() && host_count == 0 {
            self.missing("nodes", "without `hosts` it must be given, for example nodes: 2");
        }
        self.number("nodes", 1, NODES_LIMIT).unwrap_or_else(|| u32::try_from(host_count.max(1)).unwrap_or(NODES_LIMIT))
    }

    /// Left out, every process gets a GPU.
    fn gpus_per_node(&mut self, tree: &YamlNode) -> u32 {
        if self.block.get("gpus_per_node").is_some() {
            return self.number("gpus_per_node", 0, NPROC_LIMIT).unwrap_or(1);
        }
        let nproc = tree.get_path(&["launch", "nproc_per_node"]).map(|node| self.evaluator.evaluate(node, None));
        // Errors in it are reported where `launch` is read.
        let nproc = nproc.and_then(|node| InventoryErrors::default().read_number(&node, 1, NPROC_LIMIT));
        if nproc.is_none() {
            self.missing("gpus_per_node", "for example gpus_per_node: 8; 0 for a job without GPUs");
        }
        nproc.unwrap_or(1)
    }

    fn container(&mut self, tree: &YamlNode) -> SlurmContainer {
        let Some(node) = self.value("container") else {
            if tree.get("container").is_some() {
                self.missing("container", "the inventory has a `container`: say how the cluster runs it: none, docker, pyxis or apptainer");
            }
            return SlurmContainer::None;
        };
        let container = self.errors.read_choice(&node, &SlurmContainer::ALL.map(|mode| (mode.as_str(), mode))).unwrap_or_default();
        if container == SlurmContainer::Docker && tree.get("container").is_none() {
            self.errors.report(&node.location, "the inventory has no `container`", "add container: { image: … }, or write none");
        }
        container
    }

    fn check_image(&mut self, container: SlurmContainer, image: Option<&str>, tree: &YamlNode) {
        match (container, image) {
            (SlurmContainer::None | SlurmContainer::Docker, Some(_)) => {
                let message = "only pyxis and apptainer take an image here";
                self.errors.report(&self.block.location.child("image"), message, "remove it: docker runs container.image");
            }
            (SlurmContainer::Pyxis | SlurmContainer::Apptainer, None)
                if tree.get("container").is_none() && self.block.get("image").is_none() =>
            {
                self.missing("image", "for example image: /shared/images/train.sqsh");
            }
            _ => {}
        }
    }

    fn secrets_in_file(&mut self) -> bool {
        let Some(node) = self.value("secrets") else { return false };
        self.errors.read_choice(&node, &[("file", true)]).unwrap_or(false)
    }

    fn args(&mut self) -> Vec<String> {
        let Some(node) = self.value("args") else { return Vec::new() };
        let mut args = Vec::new();
        for item in self.errors.read_list(&node, "one option of sbatch each: [--account=lab, --exclusive]") {
            let Some(text) = self.errors.read_text(item) else { continue };
            args.extend(self.errors.accept(&item.location, validate_arg(&text)).map(|()| text));
        }
        args
    }
}

fn validate_login(text: &str) -> Verdict {
    let message = format!("`{}` is not an ssh name", shorten(text));
    require(name_syntax::is_valid_jump_host(text), message, "write a host, user@host or user@host:port, as for ssh")
}

/// One partition or several, in the order of preference.
fn validate_partition(text: &str) -> Verdict {
    let fine = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && part.bytes().all(is_name_byte);
    let message = format!("`{}` is not a partition", shorten(text));
    require(text.split(',').all(fine), message, "write its name as `sinfo` prints it, or several as a,b")
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)
}

fn validate_image(text: &str) -> Verdict {
    let fine = !text.is_empty() && !text.starts_with('-') && text.bytes().all(|b| b.is_ascii_graphic() && !b"'\"\\,".contains(&b));
    require(fine, format!("`{}` is not an image", shorten(text)), "write a file of the shared file system, or the name of an image")
}

fn time_problem(text: &str) -> (String, String) {
    (
        format!("`{}` is not a time limit", shorten(text)),
        "write it as sbatch does: \"90\" (minutes), \"20:00:00\" or \"2-12:00:00\"".to_owned(),
    )
}

/// Seconds of a time limit: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
/// `days-hours:minutes:seconds`; 0 for one without a limit.
pub(crate) fn parse_time_limit(text: &str) -> Option<u64> {
    if matches!(text, "UNLIMITED" | "INFINITE" | "infinite") {
        return Some(0);
    }
    let number = |part: &str| {
        let digits = !part.is_empty() && part.len() <= 6 && part.bytes().all(|b| b.is_ascii_digit());
        if digits { part.parse::<u64>().ok() } else { None }
    };
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts: Vec<u64> = clock.split(':').map(number).collect::<Option<_>>()?;
    let seconds = match (days, parts.as_slice()) {
        (None, [minutes]) => minutes * 60,
        (None, [minutes, seconds]) => minutes * 60 + seconds,
        (_, [hours, minutes, seconds]) => hours * 3600 + minutes * 60 + seconds,
        (Some(_), [hours]) => hours * 3600,
        (Some(_), [hours, minutes]) => hours * 3600 + minutes * 60,
        _ => return None,
    };
    Some(days.unwrap_or(0) * 86_400 + seconds).filter(|all| *all > 0)
}

/// Options that the script has already, and where the inventory says them.
const OWN_OPTIONS: [(&str, &str, &str); 23] = [
    ("--clusters", "-M", "remove it: set slurm.login to a login node of that cluster"),
    ("--job-name", "-J", "remove it: jobs are named after `name`"),
    ("--nodes", "-N", "use slurm.nodes"),
    ("--ntasks-per-node", "", "remove it: there is one task a node, the launcher"),
    ("--gpus-per-node", "", "use slurm.gpus_per_node"),
    ("--cpus-per-task", "-c", "use slurm.cpus_per_task"),
    ("--partition", "-p", "use slurm.partition"),
    ("--time", "-t", "use slurm.time"),
    ("--requeue", "", "use slurm.requeue: true"),
    ("--no-requeue", "", "remove it: it is the default"),
    ("--open-mode", "", "remove it: the job's log is appended to"),
    ("--signal", "", "use launch.stop_grace"),
    ("--output", "-o", "remove it: the job's log is <name>-<job id>.out"),
    ("--error", "-e", "remove it: the job's log is <name>-<job id>.out"),
    ("--input", "-i", "remove it: the job reads nothing"),
    ("--array", "-a", "remove it: one job is one run"),
    ("--wrap", "", "remove it: see launch.command"),
    ("--parsable", "", "remove it"),
    ("--test-only", "", "remove it"),
    ("--wait", "-W", "remove it"),
    ("--quiet", "-Q", "remove it"),
    ("--container-image", "", "use slurm.container: pyxis and slurm.image"),
    ("--het-group", "", "remove it: heterogeneous jobs are not supported"),
];

/// One option of sbatch: it becomes one `#SBATCH` line.
fn validate_arg(text: &str) -> Verdict {
    let show = shorten(text);
    if text.contains(|c: char| c.is_control()) {
        return Err(("an option with a line end or another control character".to_owned(), "write one option on one line".to_owned()));
    }
    if text.len() > ARG_LENGTH_LIMIT {
        return Err((format!("an option of {} bytes", text.len()), format!("write at most {ARG_LENGTH_LIMIT}")));
    }
    let name = text.split('=').next().unwrap_or_default();
    let long = name.strip_prefix("--").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
    let short = name.len() == 2 && name.starts_with('-') && name.as_bytes().get(1).is_some_and(u8::is_ascii_alphabetic);
    let is_option = long || (short && !text.contains('='));
    if !is_option {
        let hint = "write one long option with its value, for example --account=lab";
        return Err((format!("`{show}` is not an option of sbatch"), hint.to_owned()));
    }
    match OWN_OPTIONS.iter().find(|(own, letter, _)| *own == name || (short && *letter == name)) {
        Some((own, _, hint)) => Err((format!("orchestrate sets `{own}` itself"), (*hint).to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_read_as_sbatch_does() {
        let cases = [
            ("90", 5400),
            ("1:30", 90),
            ("20:00:00", 72_000),
            ("2-12", 216_000),
            ("1-00:30", 88_200),
            ("1-01:01:01", 90_061),
            ("UNLIMITED", 0),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_time_limit(text), Some(seconds), "{text}");
        }
        for text in ["", "0", "20h", "1:2:3:4", "-1", "1-", "1-2-3", " 5", "５", "9999999"] {
            assert_eq!(parse_time_limit(text), None, "{text}");
        }
    }

    #[test]
    fn sbatch_options_are_one_line_and_not_ours() {
        for fine in ["--account=lab", "--exclusive", "--comment=a \"b\" #c", "-H", "--gres=gpu:h200:8", "--mem=0"] {
            assert_eq!(validate_arg(fine), Ok(()), "{fine}");
        }
        let odd = ["--account=a\n#SBATCH --exclusive", "--comment=\u{7}", "account=lab", "", "--"];
        let ours = ["-N2", "-N", "--nodes=3", "--Nodes", "--test-only", "--clusters=all", "-M"];
        for wrong in odd.into_iter().chain(ours) {
            assert!(validate_arg(wrong).is_err(), "{wrong:?}");
        }
        assert!(validate_arg(&format!("--comment={}", "x".repeat(2000))).is_err());
    }
}
