//! Labels, colours and formats that the plain lines, the bars and the recap share. Colour never carries meaning alone.

use crate::event::{LayerCounts, Level, Outcome, Phase, RunInfo, RunOutcome};
use crate::model::phase::START_KEEPER;
use crate::model::step_status::StepStatus;
use crate::state::RunState;

use crate::text::hostlist;
use crate::text::sanitize::{COLOR_RESET, DIM, GREEN, RANK_COLORS, RED, Sanitizer, YELLOW};
use crate::text::translation::Lang;

pub(crate) use crate::text::width::{truncate_text, wrap_bounded, wrap_text};

const MIN_PAGE_WIDTH: usize = 80;
/// Longer lines are hard to read.
const MAX_PAGE_WIDTH: usize = 120;

/// The columns that a report fills on a terminal of this width; `None`: it goes to a file or a pipe.
pub(crate) fn page_width(columns: Option<u16>) -> usize {
    columns.map_or(MAX_PAGE_WIDTH, |columns| usize::from(columns).clamp(MIN_PAGE_WIDTH, MAX_PAGE_WIDTH))
}

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Ok,
    Warn,
    Bad,
    Dim,
    Plain,
}

/// `cli` decides this once, from `--color`, `NO_COLOR` and the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TextStyle {
    pub color: bool,
}

impl TextStyle {
    /// Marks `text` with the colour of its tone; [`crate::text::sanitize::PrintableText`] turns the mark into an escape sequence.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let mark = match tone {
            Tone::Ok => GREEN,
            Tone::Warn => YELLOW,
            Tone::Bad => RED,
            Tone::Dim => DIM,
            Tone::Plain => return text.to_owned(),
        };
        self.mark(mark, text)
    }

    /// Marks `text` with the colour of a rank.
    pub(crate) fn paint_rank(self, rank: u32, text: &str) -> String {
        let mark = RANK_COLORS.get(rank as usize % RANK_COLORS.len()).copied().unwrap_or(DIM);
        self.mark(mark, text)
    }

    fn mark(self, mark: char, text: &str) -> String {
        if self.color && !text.is_empty() { format!("{mark}{text}{COLOR_RESET}") } else { text.to_owned() }
    }
}

/// `image: pull image: no space left`. A title that the error repeats is left out; `message` translates and sanitizes.
pub(crate) fn step_failure(phase: Phase, title: &str, error: &str, message: impl Fn(&str) -> String) -> String {
    let parts = [phase.label(), message(title), message(error)];
    let shown = parts.iter().enumerate().filter(|(at, _)| *at != 1 || !error.contains(title)).map(|(_, part)| part.as_str());
    shown.collect::<Vec<_>>().join(": ")
}

/// How many checks have each level, the worst first: `1 failed`, `28 passed`.
pub(crate) fn level_counts(lang: Lang, style: TextStyle, levels: impl Iterator<Item = Level> + Clone) -> Vec<String> {
    let counts =
        [Level::Fail, Level::Warn, Level::Pass, Level::Skipped].map(|level| (level, levels.clone().filter(|l| *l == level).count()));
    counts.into_iter().filter(|(_, n)| *n > 0).map(|(level, n)| level_count(lang, style, level, n)).collect()
}

fn level_count(lang: Lang, style: TextStyle, level: Level, n: usize) -> String {
    let (text, tone) = match level {
        Level::Pass => (lang.tr_fill("{} passed", &[&n.to_string()]), Tone::Ok),
        Level::Warn => (lang.count(n, "warning"), Tone::Warn),
        Level::Fail => (lang.tr_fill("{} failed", &[&n.to_string()]), Tone::Bad),
        Level::Skipped => (lang.tr_fill("{} skipped", &[&n.to_string()]), Tone::Dim),
    };
    style.paint(tone, &text)
}

/// `0.3 s`, `12 s`, `4m05s`, `2h13m`.
pub(crate) fn format_duration(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    match seconds {
        0..10 => format!("{}.{} s", seconds, millis.max(0) % 1000 / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The folded names of hosts given by index: `gpu[01-04]`.
pub(crate) fn format_hosts<'a>(state: &RunState, sanitizer: &Sanitizer, hosts: impl IntoIterator<Item = &'a u32>) -> String {
    let name = |host: &u32| match state.host_name(*host) {
        "" => format!("host {host}"),
        name => sanitizer.sanitize_line(name),
    };
    hostlist::fold_names(&hosts.into_iter().map(name).collect::<Vec<_>>())
}

/// `rank 3`, `ranks 0-3,7`.
pub(crate) fn format_ranks(ranks: &[u32]) -> String {
    let numbers = hostlist::fold_numbers(ranks);
    if ranks.len() == 1 { format!("rank {numbers}") } else { format!("ranks {numbers}") }
}

/// `up wan22`.
pub(crate) fn run_title(info: &RunInfo, sanitizer: &Sanitizer) -> String {
    [info.command.as_str(), info.name.as_str()]
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| sanitizer.sanitize_line(text))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The label of an operation's outcome.
pub(crate) fn outcome_label(outcome: &Outcome) -> (&'static str, Tone) {
    match outcome {
        Outcome::Ok => ("OK", Tone::Ok),
        Outcome::Detached => ("DETACHED", Tone::Warn),
        Outcome::Failed => ("FAILED", Tone::Bad),
        Outcome::Refused => ("REFUSED", Tone::Bad),
        Outcome::Unreachable => ("UNREACHABLE", Tone::Bad),
        Outcome::Signal(_) | Outcome::Stopped => ("STOPPED", Tone::Warn),
        Outcome::Leftovers => ("LEFTOVERS", Tone::Bad),
        Outcome::Locked => ("LOCKED", Tone::Bad),
    }
}

/// The name of a phase of this plan: on bare hosts a keeper takes the container's place.
pub(crate) fn phase_name(phase: Phase, state: &RunState) -> String {
    let has_keeper = state.step_tracker.steps_in_phase(phase).any(|step| step.info.title == START_KEEPER);
    if phase == Phase::Container && has_keeper { "keeper".to_owned() } else { phase.label() }
}

/// `5/12 layers, 9 downloaded`
pub(crate) fn format_layers(counts: LayerCounts, lang: Lang) -> String {
    let LayerCounts { layers, downloaded, complete } = counts;
    let waiting = if downloaded > complete { lang.tr_fill(", {} downloaded", &[&downloaded.to_string()]) } else { String::new() };
    format!("{complete}/{}{waiting}", lang.count(layers as usize, "layer"))
}

/// `12 layers, ` before the duration of a phase that has pulled them on each of its hosts, else empty.
pub(crate) fn pulled_layers_prefix(phase: Phase, state: &RunState, lang: Lang) -> String {
    let done = state.step_tracker.steps_in_phase(phase).filter(|step| step.status == StepStatus::Done);
    let pulled = || done.clone().filter_map(|step| step.layers).map(|counts| counts.complete).filter(|layers| *layers > 0);
    match (pulled().min(), pulled().max()) {
        (Some(least), Some(most)) if least < most => lang.tr_fill("{} to {} layers, ", &[&least.to_string(), &most.to_string()]),
        (_, Some(most)) => lang.count(most as usize, "layer") + lang.comma(),
        (_, None) => String::new(),
    }
}

/// The label of a run's end.
pub(crate) fn run_end_label(end: RunOutcome) -> (&'static str, Tone) {
    outcome_label(match end {
        RunOutcome::Ok => &Outcome::Ok,
        RunOutcome::Failed => &Outcome::Failed,
        RunOutcome::Stopped => &Outcome::Stopped,
        RunOutcome::Running => &Outcome::Detached,
    })
}

/// The label of an operation's outcome; `None` while it is under way. A signal that leaves the run running counts as DETACHED; what only hosts
/// that did not answer may hold is not called a leftover.
pub(crate) fn operation_outcome_label(state: &RunState) -> Option<(&'static str, Tone)> {
    match &state.outcome.as_ref()?.0 {
        Outcome::Signal(_) if state.run_end() == Some(RunOutcome::Running) => Some(run_end_label(RunOutcome::Running)),
        Outcome::Leftovers if state.has_only_unverified_leftovers() => Some(("INCOMPLETE", Tone::Bad)),
        ended => Some(outcome_label(ended)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_of_a_failed_step_is_not_repeated() {
        let failure = |title, error| step_failure(Phase::Task(1), title, error, str::to_uppercase);
        assert_eq!(failure("get the data", "exit 1"), "task 1: GET THE DATA: EXIT 1");
        assert_eq!(failure("pull image x", "cannot pull image x: denied"), "task 1: CANNOT PULL IMAGE X: DENIED");
    }

    #[test]
    fn durations_and_texts_are_formatted() {
        assert_eq!([0, 950, 9_999, 59_999, 245_000, 7_980_000].map(format_duration), ["0.0 s", "0.9 s", "9.9 s", "59 s", "4m05s", "2h13m"]);
        assert_eq!(
            (truncate_text("abcdef", 4), truncate_text("中中中", 4), truncate_text("abcd", 4)),
            ("abc…".into(), "中…".into(), "abcd".into())
        );
        let painted = TextStyle { color: true }.paint(Tone::Bad, "x");
        assert_eq!(crate::text::sanitize::PrintableText::new(&painted).as_str(), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(TextStyle::default().paint(Tone::Bad, "x"), "x");
    }

    #[test]
    fn neighbouring_ranks_have_different_colours() {
        let shown = |rank| {
            let painted = TextStyle { color: true }.paint_rank(rank, "x");
            crate::text::sanitize::PrintableText::new(&painted).as_str().to_owned()
        };
        assert_eq!(shown(0), "\u{1b}[36mx\u{1b}[0m");
        assert_eq!((0..6).map(shown).collect::<std::collections::BTreeSet<_>>().len(), 6);
        assert_eq!(shown(6), shown(0));
        assert_eq!(TextStyle::default().paint_rank(3, "x"), "x");
    }
}
