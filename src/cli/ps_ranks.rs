//! The ranks of `ps`: state, step and last line of each, from the last bytes of its log.

use crate::event::LogFile;
use crate::lifecycle::session::Session;
use crate::model::exit::Exit;
use crate::plan::facts::HostFacts;
use crate::plan::protocol::log_ends::{log_ends_command, parse_log_ends};
use crate::state::log_lines::LineSplitter;
use crate::state::metric_scanner::{MetricScanner, MetricValues, STEP_INDEX};
use crate::state::training_metrics::{parse_progress, parse_step_of_total};

/// The longest last line that is kept.
const MAX_LINE_CHARS: usize = 400;

pub(super) struct RankRow {
    pub(super) rank: u32,
    pub(super) exit: Option<Exit>,
    /// The newest step, and of how many if the line says so.
    pub(super) step: Option<(u64, Option<u64>)>,
    /// As the rank wrote it: to be sanitized.
    pub(super) last_line: Option<String>,
}

impl RankRow {
    pub(super) fn state_text(&self) -> String {
        self.exit.map_or_else(|| "running".to_owned(), |exit| if exit.is_success() { "ok".to_owned() } else { exit.to_string() })
    }

    pub(super) fn step_text(&self) -> Option<String> {
        self.step.map(|(done, total)| total.map_or_else(|| done.to_string(), |total| format!("{done}/{total}")))
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "rank": self.rank, "state": self.state_text(), "step": self.step.map(|step| step.0),
            "total_steps": self.step.and_then(|step| step.1), "last_line": self.last_line,
        })
    }
}

/// The ranks of every host, each in its last life. A host whose logs cannot be read still has its ranks.
pub(super) async fn collect_ranks(session: &Session, facts: &[Option<HostFacts>]) -> Vec<Vec<RankRow>> {
    let contexts = session.host_contexts(facts, None);
    let mut rows: Vec<Vec<RankRow>> = facts.iter().map(|facts| facts.as_ref().map_or_else(Vec::new, last_lives)).collect();
    let commands = contexts.iter().zip(facts).enumerate().filter_map(|(host, (context, facts))| {
        let logs = last_logs(facts.as_ref()?);
        (!logs.is_empty()).then(|| (host, log_ends_command(context, &logs)))
    });
    for (host, answer) in session.engine.fan_out(commands.collect()).await {
        let Ok(output) = answer else { continue };
        for (file, bytes) in parse_log_ends(&output.stdout) {
            let LogFile::Rank { rank, .. } = file else { continue };
            if let Some(row) = rows.get_mut(host).and_then(|rows| rows.iter_mut().find(|row| row.rank == rank)) {
                (row.step, row.last_line) = read_end(&bytes);
            }
        }
    }
    rows
}

fn last_lives(facts: &HostFacts) -> Vec<RankRow> {
    let mut lives: Vec<_> = facts.ranks.iter().collect();
    lives.sort_by_key(|(rank, restart, _)| (*rank, std::cmp::Reverse(*restart)));
    lives.dedup_by_key(|(rank, ..)| *rank);
    lives
        .into_iter()
        .map(|(rank, _, exit)| RankRow { rank: *rank, exit: exit.map(|(exit, _)| exit), step: None, last_line: None })
        .collect()
}

/// The log of each rank's last life, with its size.
fn last_logs(facts: &HostFacts) -> Vec<(LogFile, u64)> {
    let mut logs: Vec<(LogFile, u64)> =
        facts.log_sizes.iter().copied().filter(|(file, size)| matches!(file, LogFile::Rank { .. }) && *size > 0).collect();
    let key = |(file, _): &(LogFile, u64)| match file {
        LogFile::Rank { rank, restart } => (*rank, std::cmp::Reverse(*restart)),
        LogFile::Launcher | LogFile::Task { .. } => (u32::MAX, std::cmp::Reverse(0)),
    };
    logs.sort_by_key(key);
    logs.dedup_by_key(|log| key(log).0);
    logs
}

/// The newest step and the last line of the end of a log; a progress bar that is being drawn counts.
fn read_end(bytes: &[u8]) -> (Option<(u64, Option<u64>)>, Option<String>) {
    let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
    splitter.push(bytes, |line| lines.push(line));
    lines.extend(splitter.finish_line());
    lines.retain(|line| !line.trim().is_empty());
    let newest = |parse: fn(&[u8], i64) -> Option<crate::state::training_metrics::TrainingProgress>| {
        lines.iter().rev().find_map(|line| parse(line.as_bytes(), 0)?.done_of_total).map(|(done, total)| (done, Some(total)))
    };
    let step = newest(parse_step_of_total).or_else(|| newest_step(&lines)).or_else(|| newest(parse_progress));
    (step, lines.pop().map(|line| line.chars().take(MAX_LINE_CHARS).collect()))
}

/// The newest step in lines that do not say of how many, as the dashboard reads it.
fn newest_step(lines: &[String]) -> Option<(u64, Option<u64>)> {
    let (scanner, mut values) = (MetricScanner::default(), MetricValues::new());
    lines.iter().rev().find_map(|line| {
        scanner.scan_line(line.as_bytes(), &mut values);
        let (_, step) = values.iter().find(|(metric, step)| *metric == STEP_INDEX && *step >= 0.0)?;
        Some((*step as u64, None))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_step_and_last_line_are_found() {
        let read = |text: &str| read_end(text.as_bytes());
        assert_eq!(read("step 6/9 loss 1\nstep 7/9 loss 1\nsaving\n\n"), (Some((7, Some(9))), Some("saving".to_owned())));
        assert_eq!(read("\r 10%|#  | 1/10 [00:01<00:09]\r 20%|## | 2/10 [00:02<00:08]").0, Some((2, Some(10))));
        assert_eq!(read("rank 0 step 53 loss 0.1\nrank 0 step 54 loss 0.1\n").0, Some((54, None)));
        assert_eq!(read(""), (None, None));
        assert_eq!(read(&"y".repeat(3_000)).1.map(|line| line.chars().count()), Some(400));
    }
}
