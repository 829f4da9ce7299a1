//! One line per phase: what its steps did, by host.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::super::line_writer::LineOutput;
use super::super::style::{self, Tone};
use super::{PHASE_COLUMNS, PlainSink};
use crate::event::{Phase, RunInfo, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::state::{PhaseResult, RunState};
use crate::text::width::pad_end;

/// The hosts on which steps of a phase have not ended because it failed on others.
fn unfinished_hosts(phase: Phase, results: &BTreeMap<PhaseResult, BTreeSet<u32>>, state: &RunState) -> BTreeSet<u32> {
    let Some(failed) = results.get(&PhaseResult::Failed) else { return BTreeSet::new() };
    let open = state.step_tracker.steps_in_phase(phase).filter(|step| !step.status.has_ended());
    open.map(|step| step.info.host).filter(|host| !failed.contains(host)).collect()
}

impl<O: LineOutput> PlainSink<O> {
    pub(super) fn on_run_started(&mut self, info: &RunInfo, state: &RunState) -> io::Result<()> {
        self.phases.clear();
        for step in &info.steps {
            let tally = self.phases.entry(step.phase).or_default();
            tally.open_steps += 1;
            if matches!(step.phase, Phase::Task(_)) {
                tally.task = format!("{}{}", self.settings.sanitizer.sanitize_line(&step.title), self.settings.lang.colon());
            }
        }
        // The preflight probes begin before there is a plan.
        if let Some(at) = self.checks_started_at
            && let Some(tally) = self.phases.get_mut(&Phase::Preflight)
        {
            (tally.started_at, self.checks_started_at) = (Some(at), None);
        }
        let run = (info.run_id.clone(), info.attempt);
        if !info.run_id.is_empty() && run != self.log_run {
            // The log offsets of another run start at 0.
            self.flush_pending(state)?;
            self.log_filter.start_next_run();
            self.log_run = run;
        }
        let announcement = (info.run_id.clone(), info.attempt, info.ranks.len());
        // A command that follows a run learns its ranks a moment after its id: one line says both.
        let has_title = self.announced != (String::new(), 0, 0);
        let incomplete = info.ranks.is_empty() && has_title;
        if announcement == self.announced || info.hosts.is_empty() || incomplete {
            return Ok(());
        }
        self.announced = announcement;
        let count = |text: &mut String| {
            if !info.ranks.is_empty() {
                text.push_str(&self.settings.lang.tr_fill(", {}", &[&self.settings.lang.count(info.ranks.len(), "rank")]));
            }
        };
        let (run, hosts) = (self.settings.sanitizer.sanitize_line(&info.run_id), self.settings.lang.count(info.hosts.len(), "host"));
        let mut text;
        if has_title && !run.is_empty() {
            text = self.settings.lang.tr_fill("run {}: {}", &[&run, &hosts]);
            count(&mut text);
        } else {
            text = [&style::run_title(info, &self.settings.sanitizer), self.settings.lang.colon(), &hosts].concat();
            count(&mut text);
            if !run.is_empty() {
                text.push_str(&self.settings.lang.tr_fill(", run {}", &[&run]));
            }
        }
        if info.attempt > 1 {
            text.push_str(&self.settings.lang.tr_fill(", attempt {}", &[&info.attempt.to_string()]));
        }
        self.flush_pending(state)?;
        self.write_line(Tone::Plain, &text)
    }

    /// Counts the end of a step; the last step of a phase prints the phase's line.
    pub(super) fn on_step_ended(&mut self, step: u32, at: UnixMillis, state: &RunState) -> io::Result<()> {
        let Some(phase) = state.step_tracker.step(step).map(|step| step.info.phase) else { return Ok(()) };
        let Some(tally) = self.phases.get_mut(&phase) else { return Ok(()) };
        tally.started_at.get_or_insert(at);
        tally.open_steps = tally.open_steps.saturating_sub(1);
        if tally.open_steps == 0 { self.write_phase_line(phase, at, state) } else { Ok(()) }
    }

    /// `: ./venv exists`, where every host that skipped the task did so for the same reason.
    fn skip_reason(&self, phase: Phase, state: &RunState) -> String {
        let skipped = state.step_tracker.steps_in_phase(phase).filter(|step| step.status == StepStatus::Skipped);
        let reasons: BTreeSet<&str> = skipped.map(|step| step.note.as_str()).collect();
        match Vec::from_iter(reasons)[..] {
            [""] | [] | [_, _, ..] => String::new(),
            [reason] => {
                format!("{}{}", self.settings.lang.colon(), self.settings.lang.message(&self.settings.sanitizer.sanitize_line(reason)))
            }
        }
    }

    pub(super) fn write_phase_line(&mut self, phase: Phase, at: UnixMillis, state: &RunState) -> io::Result<()> {
        let Some(tally) = self.phases.remove(&phase) else { return Ok(()) };
        let mut results = state.phase_results(phase);
        if results.is_empty() {
            return Ok(());
        }
        self.flush_pending(state)?;
        let unfinished = unfinished_hosts(phase, &results, state);
        results.values_mut().for_each(|hosts| hosts.retain(|host| !unfinished.contains(host)));
        results.retain(|_, hosts| !hosts.is_empty());
        // The worst first.
        let mut texts: Vec<String> = results
            .iter()
            .rev()
            .map(|(result, hosts)| {
                let (tone, label) = match result {
                    PhaseResult::Failed => (Tone::Bad, self.settings.lang.tr("FAILED")),
                    PhaseResult::Changed => (Tone::Warn, self.settings.lang.tr("changed")),
                    PhaseResult::Ok => (Tone::Ok, self.settings.lang.tr("ok")),
                    PhaseResult::Skipped => (Tone::Dim, self.settings.lang.tr("skipped")),
                };
                let why = if *result == PhaseResult::Skipped { self.skip_reason(phase, state) } else { String::new() };
                format!("{} {}{why}", self.settings.style.paint(tone, label), style::format_hosts(state, &self.settings.sanitizer, hosts))
            })
            .collect();
        if !unfinished.is_empty() {
            texts.push(format!(
                "{} {}",
                self.settings.lang.tr("not finished"),
                style::format_hosts(state, &self.settings.sanitizer, &unfinished)
            ));
        }
        let (layers, duration) =
            (style::pulled_layers_prefix(phase, state, self.settings.lang), style::format_duration(at - tally.started_at.unwrap_or(at)));
        let time = self.settings.style.paint(Tone::Dim, &format!("({layers}{duration})"));
        // With `--preflight off` only what a launch cannot do without is looked at.
        let is_unchecked = phase == Phase::Preflight && state.check_levels.is_empty() && !results.contains_key(&PhaseResult::Failed);
        let note = if is_unchecked { self.settings.lang.tr(", without further checks") } else { "" };
        let name = pad_end(&style::phase_name(phase, state), PHASE_COLUMNS);
        self.out.write_line(&format!("{name} {}{}{note} {time}", tally.task, texts.join("; ")))
    }
}
