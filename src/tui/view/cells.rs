//! One GPU as a cell of the matrix: what it tells of the metric, whether something is wrong with it, and whether it is meant by what is looked
//! for.
//!
//! Uses `sum`. A rank and a GPU belong together where the host has as many of one as of the other.

use ratatui::style::Style;
use ratatui::text::Span;

use crate::event::GpuSample;
use crate::state::{HostState, RankState};
use crate::tui::app::App;
use crate::tui::theme::Status;

use super::sum;

/// What a cell tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Metric {
    #[default]
    Utilization,
    Power,
    Memory,
    Temperature,
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Metric::Utilization => "UTIL, percent",
            Metric::Power => "POWER, percent of the limit",
            Metric::Memory => "MEMORY, percent in use",
            Metric::Temperature => "TEMPERATURE, degrees",
        }
    }

    pub(super) fn next(self) -> Metric {
        match self {
            Metric::Utilization => Metric::Power,
            Metric::Power => Metric::Memory,
            Metric::Memory => Metric::Temperature,
            Metric::Temperature => Metric::Utilization,
        }
    }

    /// From 0 to 100; absent where it was not told.
    fn of(self, gpu: &GpuSample) -> Option<f32> {
        let share = |part: Option<f32>, whole: Option<f32>| {
            part.zip(whole).filter(|(_, whole)| *whole > 0.0).map(|(part, whole)| part / whole * 100.0)
        };
        match self {
            Metric::Utilization => gpu.utilization,
            Metric::Power => share(gpu.power, gpu.power_limit),
            Metric::Memory => share(gpu.memory_used, gpu.memory_total),
            Metric::Temperature => gpu.temperature,
        }
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
enum Term {
    /// The host's name has it, in small letters.
    Host(String),
    /// The metric lies above or below a number.
    Value(Metric, bool, f32),
}

/// What is looked for: all of its terms hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Filter {
    text: String,
    terms: Vec<Term>,
}

impl Filter {
    /// Reads `gpu03 util<5 temp>80`.
    pub(super) fn parse(text: &str) -> Result<Filter, String> {
        let mut terms = Vec::new();
        for word in text.split([' ', '&']).filter(|word| !word.is_empty()) {
            let Some(at) = word.find(['<', '>']) else {
                terms.push(Term::Host(word.to_lowercase()));
                continue;
            };
            let (name, rest) = word.split_at(at);
            let metric = match name {
                "util" | "utilization" => Metric::Utilization,
                "power" => Metric::Power,
                "mem" | "memory" => Metric::Memory,
                "temp" | "temperature" => Metric::Temperature,
                _ => return Err(format!("{name}: not one of util, power, mem, temp")),
            };
            let number = rest[1..].trim_end_matches(['%', 'C']).parse::<f32>();
            let Ok(number) = number else { return Err(format!("{word}: a number belongs behind {}", &rest[..1])) };
            terms.push(Term::Value(metric, rest.starts_with('>'), number));
        }
        Ok(Filter { text: text.trim().to_owned(), terms })
    }

    /// Whether nothing is looked for.
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// As it was typed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn holds(&self, host: &str, gpu: &GpuSample) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Host(part) => host.to_lowercase().contains(part.as_str()),
            Term::Value(metric, above, limit) => metric.of(gpu).is_some_and(|value| if *above { value > *limit } else { value < *limit }),
        })
    }
}

/// What the cells of a frame have in common.
pub(super) struct Matrix<'a> {
    /// Of every host its ranks, by their numbers there.
    ranks: Vec<Vec<(u32, &'a RankState)>>,
}

impl<'a> Matrix<'a> {
    pub(super) fn of(app: &'a App) -> Matrix<'a> {
        let paired = |rank: &&RankState| {
            let host = rank.host as usize;
            let gpus = app.state.hosts.get(host).map_or(0, |host| host.gpus.len());
            app.standings.get(host).is_some_and(|host| host.ranks.all == gpus)
        };
        let mut ranks = vec![Vec::new(); app.state.hosts.len()];
        for rank in app.state.ranks.values().filter(paired) {
            if let (Some(own), Some(local)) = (ranks.get_mut(rank.host as usize), rank.local_rank) {
                own.push((local, rank));
            }
        }
        Matrix { ranks }
    }

    /// The rank that has this GPU.
    pub(super) fn rank(&self, host: usize, gpu: u32) -> Option<&'a RankState> {
        self.ranks.get(host)?.iter().find(|(local, _)| *local == gpu).map(|(_, rank)| *rank)
    }

    fn failed(&self, app: &App, host: usize, gpu: u32) -> bool {
        self.rank(host, gpu).is_some_and(|rank| rank.failed() && !app.state.was_stopped(rank))
    }

    /// Whether something is wrong with it, or nothing is known of it any more.
    fn faulty(&self, app: &App, at: usize, host: &HostState, gpu: &GpuSample) -> bool {
        silent(app, host)
            || gpu.ecc_errors.is_some_and(|errors| errors > 0.0)
            || sum::slowed(gpu)
            || gpu.utilization.is_none()
            || self.failed(app, at, gpu.index)
    }

    /// Whether it is meant by what is looked for.
    pub(super) fn meant(&self, app: &App, at: usize, place: usize) -> bool {
        let Some((host, gpu)) = app.state.hosts.get(at).and_then(|host| Some((host, host.gpus.get(place)?))) else { return false };
        (!app.gpus.faults || self.faulty(app, at, host, gpu)) && app.gpus.filter.holds(&host.name, gpu)
    }

    /// How many are meant, of how many.
    pub(super) fn count(&self, app: &App) -> (usize, usize) {
        let all = || app.state.hosts.iter().enumerate().flat_map(|(at, host)| (0..host.gpus.len()).map(move |gpu| (at, gpu)));
        (all().filter(|(at, gpu)| self.meant(app, *at, *gpu)).count(), all().count())
    }

    /// It, in a cell of so many columns; one and more than one have a space before them.
    pub(super) fn cell(&self, app: &App, at: usize, place: usize, width: usize) -> Span<'static> {
        let under = at == app.gpus.host && place == app.gpus.gpu;
        let found = app.state.hosts.get(at).and_then(|host| Some((host, host.gpus.get(place)?)));
        let Some((host, gpu)) = found else {
            let style = if under { app.theme.chosen() } else { Style::new() };
            return Span::styled(" ".repeat(width), style);
        };
        let value = app.gpus.metric.of(gpu);
        let shown = GpuSample { utilization: value, ecc_errors: gpu.ecc_errors, ..GpuSample::default() };
        let (glyph, status) = match sum::glyph(&shown, silent(app, host)) {
            (_, Status::Ok | Status::Pending) if self.failed(app, at, gpu.index) => ('!', Status::Bad),
            told => told,
        };
        let mut style = match (status, value) {
            (Status::Ok, _) if sum::slowed(gpu) => app.theme.status(Status::Warn),
            (Status::Ok, Some(value)) => app.theme.heat(value),
            _ => app.theme.status(status),
        };
        if !self.meant(app, at, place) {
            style = app.theme.dim();
        }
        if under {
            style = app.theme.chosen();
        }
        let most: f32 = if width == 3 { 99.0 } else { 999.0 };
        let text = match (width, status, value) {
            (1, ..) | (_, Status::Bad | Status::Lost | Status::Pending, _) | (_, _, None) => glyph.to_string(),
            (_, _, Some(value)) => format!("{:.0}", value.min(most)),
        };
        Span::styled(format!("{text:>width$}"), style)
    }
}

fn silent(app: &App, host: &HostState) -> bool {
    app.stale(host.gpus_at) || host.gpus_unread.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_and_all_must_hold() {
        let gpu = GpuSample {
            utilization: Some(3.0),
            temperature: Some(84.0),
            power: Some(70.0),
            power_limit: Some(700.0),
            ..GpuSample::default()
        };
        let holds = |text: &str| Filter::parse(text).expect(text).holds("GPU03", &gpu);
        assert!(holds("gpu03 util<5 temp>80") && holds("power<11%&temp>83C") && holds("") && holds("u0"));
        assert!(!holds("gpu04 util<5") && !holds("util>5") && !holds("mem>0"), "what is not told is neither above nor below");
        assert_eq!(Filter::parse("heat>3"), Err("heat: not one of util, power, mem, temp".to_owned()));
        assert_eq!(Filter::parse("util<"), Err("util<: a number belongs behind <".to_owned()));
    }
}
