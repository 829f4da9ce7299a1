//! A plan that replaces the one before: hosts keep their state by name, failed steps stay counted.

use std::sync::Arc;

use super::log_lines::RecentLines;
use super::metric_scanner::MetricScanner;
use super::training_metrics::TrainingMetrics;
use crate::event::Phase;

use super::{HostState, OutputActivity, RankState, RunInfo, RunState, StepState, StepTracker};

/// How many failed steps are kept.
const MAX_FAILED_STEPS: usize = 1000;
/// How many steps of tasks are kept.
const MAX_TASK_STEPS: usize = 50_000;

impl RunState {
    pub(super) fn start_plan(&mut self, info: &RunInfo) {
        self.archive_plan_counts();
        if info.is_other_run((&self.info.run_id, self.info.attempt)) {
            self.ranks.clear();
            self.metrics = TrainingMetrics::default();
            self.earlier_failed_steps = Arc::default();
            self.earlier_task_steps = Arc::default();
            self.culprit = None;
            self.hang = None;
            self.output_activity = OutputActivity::default();
            self.ready_at = None;
            self.stopping_since = None;
            self.reported_end = None;
            self.first_rank_started = None;
            for host in self.hosts.iter_mut() {
                (host.launcher_started, host.launcher_exit, host.launcher_was_stopped) = (None, None, false);
                host.launcher_recent_lines = RecentLines::default();
                host.task_recent_lines = (0, RecentLines::default());
            }
        }
        if !info.hosts.is_empty() {
            self.replace_hosts(&info.hosts);
        }
        for planned in info.ranks.iter().take(super::MAX_RANKS) {
            let rank = self.ranks.get_or_insert_with(planned.rank, || RankState { rank: planned.rank, ..RankState::default() });
            if rank.started_at.is_none() {
                rank.host = planned.host;
            }
            rank.local_rank = Some(planned.local_rank);
        }
        self.step_tracker = Arc::new(StepTracker::new(&info.steps));
        if self.info.metrics != info.metrics {
            self.scanner = Arc::new(MetricScanner::new(&info.metrics));
        }
        self.outcome = None;
        self.info = Arc::new(info.clone());
    }

    /// Adds the current plan's phase counts and failed steps to the totals, before a new plan replaces it.
    fn archive_plan_counts(&mut self) {
        for host in 0..self.hosts.len() {
            let total = self.phase_counts(host);
            self.hosts[host].earlier_phase_counts = total;
        }
        let failed: Vec<StepState> =
            self.failed_steps_of_plan().take(MAX_FAILED_STEPS.saturating_sub(self.earlier_failed_steps.len())).cloned().collect();
        Arc::make_mut(&mut self.earlier_failed_steps).extend(failed);
        let is_task = |step: &&StepState| matches!(step.info.phase, Phase::Task(_));
        let room = MAX_TASK_STEPS.saturating_sub(self.earlier_task_steps.len());
        let tasks: Vec<StepState> = self.step_tracker.steps().iter().filter(is_task).take(room).cloned().collect();
        Arc::make_mut(&mut self.earlier_task_steps).extend(tasks);
        self.step_tracker = Arc::default();
    }

    /// Hosts keep their state by name.
    fn replace_hosts(&mut self, names: &[String]) {
        let old = std::mem::take(&mut self.hosts);
        let new_index = |name: &str| names.iter().position(|n| n == name).and_then(|index| u32::try_from(index).ok());
        let moved: Vec<Option<u32>> = old.iter().map(|host| new_index(&host.name)).collect();
        let (failed, tasks) = (Arc::make_mut(&mut self.earlier_failed_steps), Arc::make_mut(&mut self.earlier_task_steps));
        let of_steps = failed.iter_mut().chain(tasks).map(|step| &mut step.info.host);
        let references = self.ranks.values_mut().map(|rank| &mut rank.host).chain(of_steps);
        for host in references {
            if let Some(Some(new)) = moved.get(*host as usize) {
                *host = *new;
            }
        }
        self.hosts = names
            .iter()
            .map(|name| {
                let known = old.find_shared(|host| host.name == *name);
                known.unwrap_or_else(|| Arc::new(HostState { name: name.clone(), ..HostState::default() }))
            })
            .collect();
    }
}
