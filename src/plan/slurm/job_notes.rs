//! The job's own status file, as `assets/slurm/batch.sh` writes it.

use crate::inventory::{is_valid_host_name, is_valid_run_id};

const MAX_TEXT_CHARS: usize = 400;

/// What the job wrote into its status file, of its last start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobNotes {
    /// Counts requeues.
    pub(crate) start: u32,
    /// Seconds since 1970 of the last note.
    pub(crate) noted_at: i64,
    pub(crate) run_id: Option<String>,
    /// Why the ranks were stopped.
    pub(crate) stopping: Option<String>,
    /// The rank that failed first, `None` for a launcher; its node and exit code.
    pub(crate) first_failure: Option<(Option<u32>, String, u8)>,
    /// The task of `prepare` that runs: its number and name.
    pub(crate) task: Option<String>,
    /// Why the script gave up before or beside the ranks.
    pub(crate) failure: Option<String>,
    /// The script's exit code.
    pub(crate) exit_code: Option<u8>,
}

impl JobNotes {
    /// Reads `<seconds> <start> <word> …`. A later start replaces the notes of an earlier one.
    pub(super) fn apply_line(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (Some(at), Some(start), Some(rest)) =
            (words.next().and_then(|word| word.parse::<i64>().ok()), words.next().and_then(|word| word.parse::<u32>().ok()), words.next())
        else {
            return;
        };
        if start < self.start {
            return;
        }
        if start > self.start {
            *self = JobNotes { start, ..JobNotes::default() };
        }
        self.noted_at = at;
        match rest.split_once(' ') {
            Some(("running", run)) if is_valid_run_id(run) => self.run_id = Some(run.to_owned()),
            Some(("stopping", why)) => self.stopping = Some(short(why)),
            Some(("task", task)) => self.task = Some(short(task)),
            Some(("tasks", _)) => self.task = None,
            Some(("failed", why)) => self.failure = Some(short(why)),
            Some(("ended", code)) => self.exit_code = code.parse().ok(),
            Some(("first", first)) => self.first_failure = parse_first_failure(first).or(self.first_failure.take()),
            _ => {}
        }
    }
}

/// `<rank> <node> <exit code>`, or `launcher <node> <exit code>`.
fn parse_first_failure(text: &str) -> Option<(Option<u32>, String, u8)> {
    let mut words = text.split(' ');
    let (rank, node, code) = (words.next()?, words.next()?, words.next()?);
    (words.next().is_none() && is_valid_host_name(node)).then_some(())?;
    let rank = if rank == "launcher" { None } else { Some(rank.parse().ok()?) };
    Some((rank, node.to_owned(), code.parse().ok()?))
}

/// Foreign text for a message; it is sanitized when it is printed.
pub(super) fn short(text: &str) -> String {
    text.trim().chars().take(MAX_TEXT_CHARS).collect()
}
