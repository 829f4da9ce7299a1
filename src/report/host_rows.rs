//! The texts of the progress bars: a header, and a row per host.

use unicode_width::UnicodeWidthStr as _;

use crate::event::{Phase, UnixMillis};
use crate::model::step_status::StepStatus;
use crate::state::{ConnectionStatus, HostState, RunState, StepState};
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;
use crate::text::width::pad_end;

use super::style::{self, TextStyle, Tone, truncate_text};
use super::transfer_text::transfer_text;

const BAR_WIDTH: usize = 12;
/// GPU values older than this are not shown.
pub(crate) const GPU_STALE_MS: i64 = 30_000;

/// The first line: the command and its progress.
pub(crate) fn header_text(state: &RunState, sanitizer: &Sanitizer, lang: Lang) -> String {
    let title = style::run_title(&state.info, sanitizer);
    let counts = state.rank_counts();
    let progress = match state.current_phase() {
        _ if counts.running > 0 && state.stopping_since.is_none() => {
            let (running, all) = (lang.count(counts.running, "rank"), state.ranks.len().to_string());
            lang.tr_fill("{} of {} running{}", &[&running, &all, &training_progress(state, lang)])
        }
        _ if !state.ranks.is_empty() && counts.waiting == 0 && counts.running == 0 && !has_open_steps(state) => {
            lang.tr("ranks ended").to_owned()
        }
        Some(phase) => format!("{} {}", style::phase_name(phase, state), phase_progress(state, phase)),
        None if state.hosts.iter().all(|host| host.connection_status == ConnectionStatus::Connected) => lang.tr("facts").to_owned(),
        None => lang.tr("connect").to_owned(),
    };
    format!("{title}  {progress}")
}

/// `, step 10/18, eta 8 s`: of the running rank that is furthest behind.
fn training_progress(state: &RunState, lang: Lang) -> String {
    let running = state.ranks.values().filter(|rank| rank.exit.is_none());
    let steps = running.filter_map(|rank| rank.progress.filter(|progress| progress.is_step));
    let Some(slowest) = steps.min_by(|a, b| a.percent.total_cmp(&b.percent)) else { return String::new() };
    let Some((done, total)) = slowest.done_of_total.filter(|(done, total)| done < total) else { return String::new() };
    let eta = slowest.seconds_left.map(|left| style::format_duration(left.saturating_mul(1000)));
    let eta = eta.map_or_else(String::new, |eta| lang.tr_fill(", eta {}", &[&eta]));
    lang.tr_fill(", step {}/{}{}", &[&done.to_string(), &total.to_string(), &eta])
}

fn has_open_steps(state: &RunState) -> bool {
    state.step_tracker.steps().iter().any(|step| step.status == StepStatus::Running)
}

fn phase_progress(state: &RunState, phase: Phase) -> String {
    let (ended, all) =
        state.step_tracker.steps_in_phase(phase).fold((0, 0), |(ended, all), step| (ended + usize::from(step.status.has_ended()), all + 1));
    if all == 0 { String::new() } else { format!("{ended}/{all}") }
}

/// A summary of a host's steps.
#[derive(Default, Clone, Copy)]
struct HostProgress<'a> {
    ended_steps: usize,
    total_steps: usize,
    failed_step: Option<&'a StepState>,
    running_step: Option<&'a StepState>,
}

/// What the rows are made of.
pub(crate) struct HostRows<'a> {
    pub(crate) state: &'a RunState,
    pub(crate) sanitizer: &'a Sanitizer,
    pub(crate) style: TextStyle,
    /// Columns of the terminal.
    pub(crate) width: usize,
    pub(crate) now: UnixMillis,
    pub(crate) lang: Lang,
}

impl HostRows<'_> {
    /// At most `max_rows` rows, one per host; the last row sums up the rest. The words are those of the dashboard. Hosts with problems or
    /// running steps take precedence.
    pub(crate) fn format(&self, max_rows: usize) -> Vec<String> {
        if max_rows == 0 {
            return Vec::new();
        }
        let (hosts, progress) = (&self.state.hosts, self.host_progress());
        let mut order: Vec<usize> = (0..progress.len()).collect();
        let mut rest = Vec::new();
        if progress.len() > max_rows {
            let priority = |at: &usize| (!has_problem(&hosts[*at], &progress[*at]), progress[*at].running_step.is_none(), *at);
            order.sort_by_key(priority);
            rest = order.split_off(max_rows - 1);
            order.sort_unstable();
        }
        let name_width = order.iter().map(|at| self.sanitizer.sanitize_line(&hosts[*at].name).width()).max().unwrap_or(0).min(24);
        let mut texts: Vec<String> = order.iter().map(|at| self.host_row(*at, &progress[*at], name_width)).collect();
        if !rest.is_empty() {
            let done = rest.iter().filter(|at| progress[**at].ended_steps == progress[**at].total_steps).count();
            let failed = rest.iter().filter(|at| has_problem(&hosts[**at], &progress[**at])).count();
            let lang = self.lang;
            let failed = if failed > 0 { lang.tr_fill(", {} failed", &[&failed.to_string()]) } else { String::new() };
            let summary = lang.tr_fill("  … {}: {} done{}", &[&lang.count(rest.len(), "more host"), &done.to_string(), &failed]);
            texts.push(truncate_text(&summary, self.width.saturating_sub(1)));
        }
        texts
    }

    fn host_progress(&self) -> Vec<HostProgress<'_>> {
        let mut progress = vec![HostProgress::default(); self.state.hosts.len()];
        for step in self.state.step_tracker.steps() {
            let Some(host) = progress.get_mut(step.info.host as usize) else { continue };
            host.total_steps += 1;
            host.ended_steps += usize::from(step.status.has_ended());
            match step.status {
                StepStatus::Failed => host.failed_step = Some(step),
                StepStatus::Running => host.running_step = Some(step),
                StepStatus::Waiting | StepStatus::Done | StepStatus::Satisfied | StepStatus::Skipped => {}
            }
        }
        progress
    }

    fn host_row(&self, at: usize, progress: &HostProgress<'_>, name_width: usize) -> String {
        let filled = (progress.ended_steps * BAR_WIDTH + pulled_cells(progress)).checked_div(progress.total_steps).unwrap_or(0);
        let bar = format!("{}{}", "#".repeat(filled), "-".repeat(BAR_WIDTH - filled));
        let (tone, text) = self.activity(at, progress);
        let text_width = self.width.saturating_sub(name_width + BAR_WIDTH + 7);
        format!(
            "  {} [{bar}] {}",
            pad_end(&truncate_text(&self.sanitizer.sanitize_line(&self.state.hosts[at].name), name_width.max(1)), name_width),
            self.style.paint(tone, &truncate_text(&text, text_width))
        )
    }

    /// What happens on a host, or what is wrong there.
    fn activity(&self, at: usize, progress: &HostProgress<'_>) -> (Tone, String) {
        let (host, lang) = (&self.state.hosts[at], self.lang);
        let message = |text: &str| lang.message(&self.sanitizer.sanitize_line(text)).into_owned();
        match host.connection_status {
            ConnectionStatus::Unreachable => return (Tone::Bad, lang.tr_fill("? unreachable: {}", &[&message(&host.connection_error)])),
            ConnectionStatus::Retrying => {
                return (Tone::Warn, lang.tr_fill("? no connection, retrying: {}", &[&message(&host.connection_error)]));
            }
            ConnectionStatus::Unknown | ConnectionStatus::Connecting | ConnectionStatus::Connected => {}
        }
        if let Some(step) = progress.failed_step {
            return (Tone::Bad, format!("✗ {}: {}", step.info.phase.label(), message(&step.note)));
        }
        if let Some(step) = progress.running_step {
            let attempt = if step.retries > 0 { lang.tr_fill(" (attempt {})", &[&(step.retries + 1).to_string()]) } else { String::new() };
            let layers = step.layers.map_or_else(String::new, |counts| format!("  {}", style::format_layers(counts, lang)));
            let sent = step.transfer.map_or_else(String::new, |sent| format!("{}  ", transfer_text(&sent, lang)));
            return (Tone::Plain, format!("● {sent}{}{attempt}{layers}", message(&step.info.title)));
        }
        self.rank_activity(at).unwrap_or_else(|| match host.connection_status {
            ConnectionStatus::Connecting => (Tone::Dim, lang.tr("● connecting").to_owned()),
            _ if progress.total_steps > 0 && progress.ended_steps == progress.total_steps => {
                let has_ranks = self.state.ranks.values().any(|rank| rank.host as usize == at);
                let (tone, text) =
                    if has_ranks { (Tone::Plain, lang.tr("● ranks are starting")) } else { (Tone::Ok, lang.tr("✓ done")) };
                (tone, text.to_owned())
            }
            _ => (Tone::Dim, lang.tr("· waiting").to_owned()),
        })
    }

    /// What a host's ranks do, or how they ended; `None` before its launcher has been started.
    fn rank_activity(&self, at: usize) -> Option<(Tone, String)> {
        let (host, lang) = (&self.state.hosts[at], self.lang);
        let (mut running, mut failed) = (0, 0);
        for rank in self.state.ranks.values().filter(|rank| rank.host as usize == at) {
            running += usize::from(rank.is_running());
            failed += usize::from(rank.failed_by_itself());
        }
        let failures = lang.tr_fill("✗ {} failed", &[&lang.count(failed, "rank")]);
        match (running, failed, host.launcher_exit) {
            (1.., 0, _) => {
                let values = [lang.count(running, "rank"), gpu_utilization(host, self.now, lang)];
                Some((Tone::Ok, lang.tr_fill("● {} running{}", &[&values[0], &values[1]])))
            }
            (1.., ..) => Some((Tone::Bad, lang.tr_fill("{}, {} running", &[&failures, &running.to_string()]))),
            (0, 1.., _) => Some((Tone::Bad, failures)),
            (0, 0, Some((exit, _))) if exit.is_success() => Some((Tone::Ok, lang.tr("✓ ended").to_owned())),
            (0, 0, Some(_)) if host.launcher_was_stopped => Some((Tone::Warn, lang.tr("▲ stopped").to_owned())),
            (0, 0, Some((exit, _))) => Some((Tone::Bad, lang.tr_fill("✗ launcher: {}", &[&lang.message(&exit.to_string())]))),
            (0, 0, None) => None,
        }
    }
}

/// The share of a pull under way in the cells of one step.
fn pulled_cells(progress: &HostProgress<'_>) -> usize {
    let counts = progress.running_step.and_then(|step| step.layers).unwrap_or_default();
    (counts.complete as usize * BAR_WIDTH).checked_div(counts.layers as usize).unwrap_or(0)
}

fn has_problem(host: &HostState, progress: &HostProgress<'_>) -> bool {
    progress.failed_step.is_some() || host.is_lost()
}

/// `  GPUs 87%` if the values are recent, else empty.
fn gpu_utilization(host: &HostState, now: UnixMillis, lang: Lang) -> String {
    let known: Vec<f32> = host.gpus.iter().filter_map(|gpu| gpu.utilization).collect();
    if known.is_empty() || now - host.gpus_at > GPU_STALE_MS {
        return String::new();
    }

    let mean = known.iter().sum::<f32>() / known.len() as f32;
    lang.tr_fill("  GPUs {}%", &[&format!("{mean:.0}")])
}
