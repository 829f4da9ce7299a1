//! One GPU as a cell of the matrix: its metric, whether it is faulty, and whether it matches the
//! filter.
//!
//! A rank is matched to a GPU only if the host has equally many of both.

use std::borrow::Cow;

use ratatui::text::Span;
use unicode_width::UnicodeWidthStr as _;

use crate::event::GpuSample;
use crate::state::{GpuTracePoint, HostState, RankState};
use crate::text::glob::glob_match;
use crate::text::host_patterns::expand_pattern;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::figure_age::{self, has_stale_gpus};
use super::gpu_ranks::RanksByGpu;
use super::gpu_status::gpu_status;
use super::host_status;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum GpuMetric {
    #[default]
    Utilization,
    Power,
    Memory,
    Temperature,
}

impl GpuMetric {
    pub(super) fn name(self) -> &'static str {
        match self {
            GpuMetric::Utilization => "UTIL, %",
            GpuMetric::Power => "POWER, % of limit",
            GpuMetric::Memory => "MEMORY, % used",
            GpuMetric::Temperature => "TEMPERATURE, C",
        }
    }

    pub(super) fn next(self) -> GpuMetric {
        match self {
            GpuMetric::Utilization => GpuMetric::Power,
            GpuMetric::Power => GpuMetric::Memory,
            GpuMetric::Memory => GpuMetric::Temperature,
            GpuMetric::Temperature => GpuMetric::Utilization,
        }
    }

    /// From 0 to 100; `None` if the value is unknown.
    pub(super) fn value(self, gpu: &GpuSample) -> Option<f32> {
        self.of_point(&GpuTracePoint::from_sample(gpu, 0))
    }

    pub(super) fn of_point(self, point: &GpuTracePoint) -> Option<f32> {
        match self {
            GpuMetric::Utilization => point.utilization,
            GpuMetric::Power => point.power,
            GpuMetric::Memory => point.memory,
            GpuMetric::Temperature => point.temperature,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum GpuFilterTerm {
    /// Substring of the host name, in lower case.
    Host(String),
    /// Names in lower case, with `*` and `?`; one of them must match as a whole.
    Names(Vec<String>),
    /// The metric is above or below a number.
    Value(GpuMetric, bool, f32),
}

/// A filter; all terms must match.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct GpuFilter {
    text: String,
    terms: Vec<GpuFilterTerm>,
}

impl GpuFilter {
    /// Parses `gpu03 gpu[01-04] util<5 temp>80`.
    pub(super) fn parse(text: &str) -> Result<GpuFilter, String> {
        let mut terms = Vec::new();
        for word in text.split([' ', '&']).filter(|word| !word.is_empty()) {
            let Some(at) = word.find(['<', '>']) else {
                terms.push(parse_name(&word.to_lowercase())?);
                continue;
            };
            let (name, rest) = word.split_at(at);
            let metric = match name {
                "util" | "utilization" => GpuMetric::Utilization,
                "power" => GpuMetric::Power,
                "mem" | "memory" => GpuMetric::Memory,
                "temp" | "temperature" => GpuMetric::Temperature,
                _ => return Err(format!("unknown metric `{name}`: use util, power, mem or temp")),
            };
            let number = rest[1..].trim_end_matches(['%', 'C']).parse::<f32>();
            let Ok(number) = number else { return Err(format!("`{word}`: write a number after {}", &rest[..1])) };
            terms.push(GpuFilterTerm::Value(metric, rest.starts_with('>'), number));
        }
        Ok(GpuFilter { text: text.trim().to_owned(), terms })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn matches(&self, host: &str, gpu: &GpuSample) -> bool {
        self.is_empty() || self.matches_name(host) && self.matches_values(gpu)
    }

    /// Whether the name of a host matches and, where the filter has values, one of its GPUs.
    pub(super) fn matches_host(&self, host: &str, gpus: &[GpuSample]) -> bool {
        if self.is_empty() {
            return true;
        }
        let has_values = self.terms.iter().any(|term| matches!(term, GpuFilterTerm::Value(..)));
        self.matches_name(host) && (!has_values || gpus.iter().any(|gpu| self.matches_values(gpu)))
    }

    fn matches_name(&self, host: &str) -> bool {
        let host = host.to_lowercase();
        self.terms.iter().all(|term| match term {
            GpuFilterTerm::Host(part) => host.contains(part.as_str()),
            GpuFilterTerm::Names(names) => names.iter().any(|name| glob_match(name, &host)),
            GpuFilterTerm::Value(..) => true,
        })
    }

    fn matches_values(&self, gpu: &GpuSample) -> bool {
        self.terms.iter().all(|term| match term {
            GpuFilterTerm::Host(_) | GpuFilterTerm::Names(_) => true,
            GpuFilterTerm::Value(metric, above, limit) => {
                metric.value(gpu).is_some_and(|value| if *above { value > *limit } else { value < *limit })
            }
        })
    }
}

/// A part of a name, or names with `*`, `?` or ranges.
fn parse_name(word: &str) -> Result<GpuFilterTerm, String> {
    if !word.contains(['*', '?', '[', ']']) {
        return Ok(GpuFilterTerm::Host(word.to_owned()));
    }
    expand_pattern(word).map(GpuFilterTerm::Names).map_err(|why| format!("`{word}`: {why}"))
}

/// The GPU under the cursor, the metric, and which GPUs match.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MatrixSelection {
    pub(super) metric: GpuMetric,
    /// Index of the host and of the GPU under the cursor.
    pub(crate) host: usize,
    pub(crate) gpu: usize,
    /// An empty filter matches everything.
    pub(super) filter: GpuFilter,
    /// Show only faulty GPUs.
    pub(crate) only_faults: bool,
}

/// Shared data of the cells of a frame.
pub(super) struct GpuMatrix<'a> {
    pub(super) model: &'a Model,
    pub(super) selection: &'a MatrixSelection,
    ranks: RanksByGpu<'a>,
}

impl<'a> GpuMatrix<'a> {
    pub(super) fn new(model: &'a Model, selection: &'a MatrixSelection) -> GpuMatrix<'a> {
        GpuMatrix { model, selection, ranks: RanksByGpu::new(model) }
    }

    /// The rank on this GPU.
    pub(super) fn rank_of_gpu(&self, host: usize, gpu: u32) -> Option<&'a RankState> {
        self.ranks.of_gpu(u32::try_from(host).ok()?, gpu)
    }

    /// Whether a warning stands beside it: its memory is faulty, or it is slow or unused.
    fn warns(&self, at: usize, host: &HostState, gpu: &GpuSample) -> bool {
        let place = (u32::try_from(at).unwrap_or(u32::MAX), host);
        gpu_status(self.model, place, gpu, self.rank_of_gpu(at, gpu.index), false) == DisplayStatus::Warn
    }

    /// Whether it is faulty, slow or unused, or its values are stale.
    fn is_faulty(&self, at: usize, host: &HostState, gpu: &GpuSample) -> bool {
        has_stale_gpus(self.model, host)
            || gpu.utilization.is_none()
            || self.rank_of_gpu(at, gpu.index).is_some_and(RankState::failed_by_itself)
            || self.warns(at, host, gpu)
    }

    /// Whether it matches the selection.
    pub(super) fn is_match(&self, at: usize, gpu: usize) -> bool {
        let Some((host, gpu)) = self.model.state.hosts.get(at).and_then(|host| Some((host, host.gpus.get(gpu)?))) else {
            return false;
        };
        (!self.selection.only_faults || self.is_faulty(at, host, gpu)) && self.selection.filter.matches(&host.name, gpu)
    }

    /// Number of matching GPUs, and of all.
    pub(super) fn count_matches(&self) -> (usize, usize) {
        let all = || self.model.state.hosts.iter().enumerate().flat_map(|(at, host)| (0..host.gpus.len()).map(move |gpu| (at, gpu)));
        (all().filter(|(at, gpu)| self.is_match(*at, *gpu)).count(), all().count())
    }

    /// The cell of a GPU, with the cursor; a failure keeps its colour under it.
    pub(super) fn render_cell(&self, at: usize, gpu: usize, width: usize) -> Span<'static> {
        let mut cell = self.plain_cell(at, gpu, width);
        if at == self.selection.host && gpu == self.selection.gpu {
            let theme = self.model.theme;
            let is_error = cell.style == theme.status_style(DisplayStatus::Error);
            cell.style = if is_error { cell.style.patch(theme.selected()) } else { theme.selected() };
        }
        cell
    }

    /// The cell of a GPU with this many columns; cells wider than one start with a space.
    pub(super) fn plain_cell(&self, at: usize, place: usize, width: usize) -> Span<'static> {
        let found = self.model.state.hosts.get(at).and_then(|host| Some((host, host.gpus.get(place)?)));
        let Some((host, gpu)) = found else {
            return Span::raw(" ".repeat(width));
        };
        let value = self.selection.metric.value(gpu);
        let (stale, is_past) = (has_stale_gpus(self.model, host), figure_age::is_past(self.model, host));
        let rank = self.rank_of_gpu(at, gpu.index);
        let (glyph, status) = match host_status::gpu_glyph(gpu, value, stale) {
            (_, DisplayStatus::Ok | DisplayStatus::Pending) if rank.is_some_and(RankState::failed_by_itself) => {
                (host_status::failed_rank_glyph(self.model.theme), DisplayStatus::Error)
            }
            (glyph, DisplayStatus::Ok | DisplayStatus::Pending) if !is_past && !stale && self.warns(at, host, gpu) => {
                (glyph, DisplayStatus::Warn)
            }
            other => other,
        };
        let mut style = match (status, value) {
            (DisplayStatus::Ok, Some(value)) => self.model.theme.heat(value),
            _ => host_status::gpu_glyph_style(self.model.theme, status),
        };
        if is_past && status != DisplayStatus::Error || !self.is_match(at, place) {
            style = self.model.theme.dim();
        }
        let warning = if glyph == "!" { "!" } else { self.model.theme.symbol(DisplayStatus::Warn) };
        let most: f32 = if width == 3 { 99.0 } else { 999.0 };
        let text: Cow<'static, str> = match (width, status, value) {
            (1, DisplayStatus::Warn, _) => Cow::Borrowed(warning),
            (1, ..) => Cow::Borrowed(glyph),
            (_, DisplayStatus::Error | DisplayStatus::Lost | DisplayStatus::Pending, _) | (_, _, None) => format!("{glyph:>width$}").into(),
            // The gap to the next number stays.
            (3, DisplayStatus::Warn, _) => format!("{warning:>width$}").into(),
            (_, DisplayStatus::Warn, Some(value)) => {
                let number = width.saturating_sub(warning.width());
                format!("{:>number$.0}{warning}", value.min(most)).into()
            }
            (_, _, Some(value)) => format!("{:>width$.0}", value.min(most)).into(),
        };
        Span::styled(text, style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_filter_terms_must_match() {
        let gpu = GpuSample {
            utilization: Some(3.0),
            temperature: Some(84.0),
            power: Some(70.0),
            power_limit: Some(700.0),
            ..GpuSample::default()
        };
        let holds = |text: &str| GpuFilter::parse(text).expect(text).matches("GPU03", &gpu);
        assert!(holds("gpu03 util<5 temp>80") && holds("power<11%&temp>83C") && holds("") && holds("u0"));
        assert!(!holds("gpu04 util<5") && !holds("util>5") && !holds("mem>0"), "an unknown value is neither above nor below");
        assert!(
            holds("gpu*") && holds("*3") && holds("gpu[01-03]") && !holds("gpu[01-02]") && !holds("pu*"),
            "a pattern is the whole name"
        );
        let host = |text: &str, gpus: &[GpuSample]| GpuFilter::parse(text).expect(text).matches_host("gpu03", gpus);
        assert!(
            host("u0", &[])
                && !host("u0 util<5", &[])
                && host("util<5", std::slice::from_ref(&gpu))
                && !host("u1 util<5", std::slice::from_ref(&gpu))
        );
        assert_eq!(GpuFilter::parse("gpu[3-"), Err("`gpu[3-`: a [ without ]".to_owned()));
        assert_eq!(GpuFilter::parse("heat>3"), Err("unknown metric `heat`: use util, power, mem or temp".to_owned()));
        assert_eq!(GpuFilter::parse("util<"), Err("`util<`: write a number after <".to_owned()));
    }
}
