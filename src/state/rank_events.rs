//! Events about one rank: its start, its exit and its log.

use std::sync::Arc;

use crate::event::{EventKind, LogFile, UnixMillis};

use super::log_lines::RecentLines;
use super::metric_scanner::MetricValues;
use super::training_metrics;
use super::{MAX_RANKS, RankState, RunState};

impl RunState {
    pub(super) fn apply_rank_event(&mut self, kind: &EventKind, at: UnixMillis) {
        match kind {
            EventKind::RankStarted { host, rank, restart, started_at } => {
                let Some(state) = self.rank_for_event(*host, *rank, *restart, Some(*started_at)) else { return };
                let started = if *started_at > 0 { *started_at } else { at };
                state.started_at = Some(started);
                state.host = *host;
                self.first_rank_started = Some(self.first_rank_started.map_or(started, |first| first.min(started)));
            }
            EventKind::RankExited { host, rank, restart, exit, ended_at, stopped, .. } => {
                let is_culprit = self.culprit_ranks().contains(rank);
                let Some(state) = self.rank_for_event(*host, *rank, *restart, None) else { return };
                (state.exit, state.ended_at) = (Some(*exit), *ended_at);
                state.was_stopped = *stopped == Some(true) && !is_culprit;
                if !exit.is_success() {
                    self.mark_ended_by_launcher(*host);
                }
            }
            _ => {}
        }
    }

    /// The rank that an event is about, reset if its launcher restarted it or another host runs it now; `None` for an event of an earlier
    /// life. `started`: the time of a start event (0: unknown); `None` for other events.
    fn rank_for_event(&mut self, host: u32, rank: u32, restart: u32, started: Option<UnixMillis>) -> Option<&mut RankState> {
        if self.ranks.len() >= MAX_RANKS && !self.ranks.contains_key(&rank) || host as usize >= self.hosts.len() {
            return None;
        }
        let state = self.ranks.get_or_insert_with(rank, || RankState { rank, host, restart, ..RankState::default() });
        // Each host counts a rank's restarts by itself: the later start decides which of them runs it.
        let moved = match (started, state.started_at.filter(|_| state.host != host)) {
            (_, None) | (Some(0), Some(_)) => false,
            (Some(when), Some(before)) if when > before => true,
            _ => return None,
        };
        if !moved && restart < state.restart {
            return None;
        }
        if moved || restart > state.restart {
            *state = RankState { rank, host, restart, local_rank: state.local_rank, ..RankState::default() };
        }
        Some(state)
    }

    pub(super) fn apply_log_event(&mut self, kind: &EventKind, at: UnixMillis) {
        match kind {
            EventKind::Log { host, file: LogFile::Launcher, offset, bytes, len } => {
                self.output_activity.record_output(at);
                if let Some(host) = self.hosts.get_mut(*host as usize) {
                    host.launcher_recent_lines.push(*offset, bytes, *len, |_| {});
                }
            }
            EventKind::Log { host, file: LogFile::Rank { rank, restart }, offset, bytes, len } => {
                self.output_activity.record_output(at);
                let scanner = Arc::clone(&self.scanner);
                let Some(state) = self.rank_for_event(*host, *rank, *restart, None) else { return };
                let values = state.record_log(&scanner, (*offset, *len), bytes, at);
                self.record_metrics(*rank, &values, at);
            }
            EventKind::Log { host, file: LogFile::Task { number }, offset, bytes, len } => {
                let Some(host) = self.hosts.get_mut(*host as usize) else { return };
                if host.task_recent_lines.0 != *number {
                    host.task_recent_lines = (*number, RecentLines::default());
                }
                host.task_recent_lines.1.push(*offset, bytes, *len, |_| {});
            }
            EventKind::LogTruncated { host, file, .. } => self.restart_log_file(*host, *file),
            _ => {}
        }
    }

    fn record_metrics(&mut self, rank: u32, values: &MetricValues, at: UnixMillis) {
        for (metric, _) in values {
            training_metrics::sample_run_metric(&mut self.metrics, *metric, at, self.ranks.values().map(|rank| &rank.metrics));
        }
        if let Some(rank) = self.ranks.get_mut(&rank) {
            training_metrics::record_values(&mut rank.metrics, values, at);
        }
    }

    fn restart_log_file(&mut self, host: u32, file: LogFile) {
        let lines = match file {
            LogFile::Launcher => self.hosts.get_mut(host as usize).map(|host| &mut host.launcher_recent_lines),
            LogFile::Task { number } => self
                .hosts
                .get_mut(host as usize)
                .filter(|host| host.task_recent_lines.0 == number)
                .map(|host| &mut host.task_recent_lines.1),
            LogFile::Rank { rank, restart } => self
                .ranks
                .get_mut(&rank)
                .filter(|state| state.host == host && state.restart == restart)
                .map(|state| &mut state.recent_lines),
        };
        if let Some(lines) = lines {
            lines.restart_file();
        }
    }
}
